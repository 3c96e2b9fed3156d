/* Threads, blocks and memory of a GPU as far as one kernel can tell: a fibre per thread, run in any order. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { WARP = 32, STACK = 1 << 18, RESIDENT = 2, PATIENCE = 4096 };
enum State { READY, AT_BARRIER, IN_WARP, LEFT };

typedef struct { uint64_t start, end; int writable, argument; } Range;

struct Block;
typedef struct Thread {
    uint32_t tid[3], index, lane;
    struct Block *block;
    enum State state;
    int line;                          /* of the PTX, where it waits */
    uint32_t barrier, expected, mask;  /* which barrier, for how many threads; which lanes */
    int operation;                     /* what a warp does together */
    uint64_t value, result;            /* what it brings to the others, and takes from them */
    uint32_t choice, bound;            /* of a shuffle */
    uint32_t jumps;
    uint64_t garbage;
    unsigned char *local;
    ucontext_t context;
} Thread;

typedef struct Block { uint32_t ctaid[3]; unsigned char *shared; Thread *threads; } Block;

static struct {
    uint32_t nctaid[3], ntid[3], threads;
    uint64_t shared_size, local_size, seed, random, jumps, limit;
    const Range *ranges;
    int n_ranges, checked;
    unsigned char *params;
    ucontext_t scheduler;
    Thread *failed;
    int line;
    char message[512];
} machine;

static uint64_t next_random(void) {  /* splitmix64 */
    uint64_t z = machine.random += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static void make_garbage(unsigned char *to, uint64_t size) {
    for (uint64_t i = 0; i < size; i++) to[i] = (unsigned char)(next_random() >> 56);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void switch_away(Thread *t) { swapcontext(&t->context, &machine.scheduler); }

static _Noreturn void fail(Thread *t, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(machine.message, sizeof machine.message, format, arguments);
    va_end(arguments);
    machine.failed = t;
    machine.line = line;
    for (;;) switch_away(t);
}

/* Every jump passes here, so that one thread that spins lets the others work, and a loop without end has one. */
static inline void jump(Thread *t, int line) {
    if (++t->jumps % PATIENCE) return;
    if ((machine.jumps += PATIENCE) > machine.limit)
        fail(t, line, "no end after %llu jumps of all threads", (unsigned long long)machine.limit);
    switch_away(t);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static inline void let_others(Thread *t) {
    if (machine.seed && next_random() >> 61 == 0) switch_away(t);
}

static const char *access_name(int store) { return store == 2 ? "atomic" : store ? "store" : "load"; }

static void outside(Thread *t, int line, uint64_t address, uint64_t size, int store) {
    const Range *near = 0;
    uint64_t least = ~0ull;
    for (int i = 0; i < machine.n_ranges; i++) {
        const Range *r = &machine.ranges[i];
        if (r->argument < 0) continue;
        uint64_t distance = address < r->start ? r->start - address : address + size > r->end ? address + size - r->end : 0;
        if (distance < least) { least = distance; near = r; }
    }
    char where[120] = "";
    if (near && least < 1 << 20)
        snprintf(where, sizeof where, "; it %s argument %d by %llu bytes", address < near->start ? "precedes" : "passes",
                 near->argument, (unsigned long long)least);
    fail(t, line, "%s of %llu bytes outside of every array%s", access_name(store), (unsigned long long)size, where);
}

static inline unsigned char *global_at(Thread *t, uint64_t address, uint64_t size, int store, int line) {
    let_others(t);
    if (address % size) fail(t, line, "%s of %llu bytes is not aligned", access_name(store), (unsigned long long)size);
    if (!machine.checked) return (unsigned char *)address;
    int seen = 0;
    for (int i = 0; i < machine.n_ranges; i++) {
        const Range *r = &machine.ranges[i];
        if (address < r->start || address + size > r->end) continue;
        if (!store || r->writable) return (unsigned char *)address;
        seen = 1;
    }
    if (seen) fail(t, line, "%s into a read-only array", access_name(store));
    outside(t, line, address, size, store);
    return 0;
}

static unsigned char *window(Thread *t, unsigned char *base, uint64_t room, const char *name, uint64_t offset,
                             uint64_t size, int store, int line) {
    if (offset % size) fail(t, line, "%s of %llu bytes is not aligned", access_name(store), (unsigned long long)size);
    if (size > room || offset > room - size)
        fail(t, line, "%s of %llu bytes outside of %s memory, which has %llu", access_name(store),
             (unsigned long long)size, name, (unsigned long long)room);
    return base + offset;
}
static inline unsigned char *shared_at(Thread *t, uint64_t offset, uint64_t size, int store, int line) {
    let_others(t);
    return window(t, t->block->shared, machine.shared_size, "shared", offset, size, store, line);
}
static inline unsigned char *local_at(Thread *t, uint64_t offset, uint64_t size, int store, int line) {
    return window(t, t->local, machine.local_size, "local", offset, size, store, line);
}
static inline unsigned char *generic_at(Thread *t, uint64_t address, uint64_t size, int store, int line) {
    uint64_t shared = address - (uint64_t)t->block->shared, local = address - (uint64_t)t->local;
    if (shared < machine.shared_size) return shared_at(t, shared, size, store, line);
    if (local < machine.local_size) return local_at(t, local, size, store, line);
    return global_at(t, address, size, store, line);
}

/* ---- meetings ---------------------------------------------------------------------------------------------------- */

static Thread *warp_of(Thread *t) { return t - t->lane; }
static uint32_t warp_size(Thread *t) {
    uint32_t rest = machine.threads - (t->index - t->lane);
    return rest < WARP ? rest : WARP;
}

enum { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX, VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT, SYNC_WARP };

/* shfl.sync of one lane, as the ISA has it; a lane that is not there gives garbage. */
static void shuffle(Thread *warp, Thread *t, uint32_t size) {
    uint32_t segment = t->bound >> 8 & 31, clamped = t->bound & 31, b = t->choice & 31;
    int32_t lane = (int32_t)t->lane, low = lane & (int32_t)segment;
    int32_t most = low | (int32_t)(clamped & ~segment & 31), j = lane;
    int found = 0;
    switch (t->operation) {
        case SHFL_UP: j = lane - (int32_t)b; found = j >= most; break;
        case SHFL_DOWN: j = lane + (int32_t)b; found = j <= most; break;
        case SHFL_BFLY: j = lane ^ (int32_t)b; found = j <= most; break;
        case SHFL_IDX: j = low | (int32_t)(b & ~segment & 31); found = j <= most; break;
    }
    if (!found) j = lane;
    int there = (uint32_t)j < size && t->mask >> j & 1 && warp[j].state == IN_WARP;
    t->result = (there ? (uint32_t)warp[j].value : (uint32_t)next_random()) | (uint64_t)found << 32;
}

/* The lanes that one of them waits for are all there: let each have its result. */
static void meet_in_warp(Thread *any) {
    Thread *warp = warp_of(any);
    uint32_t size = warp_size(any);
    for (uint32_t i = 0; i < size; i++) {
        Thread *t = &warp[i];
        if (t->state != IN_WARP) continue;
        int complete = 1;
        uint32_t ballot = 0, there = 0;
        for (uint32_t j = 0; j < size; j++) {
            if (!(t->mask >> j & 1) || warp[j].state == LEFT) continue;
            if (warp[j].state != IN_WARP || warp[j].operation != t->operation || warp[j].mask != t->mask) complete = 0;
            there |= 1u << j;
            ballot |= (uint32_t)(warp[j].value != 0) << j;
        }
        if (!complete) continue;
        uint32_t mask = t->mask, operation = (uint32_t)t->operation;
        for (uint32_t j = 0; j < size; j++) {
            if (!(there >> j & 1)) continue;
            switch (operation) {
                case VOTE_ALL: warp[j].result = ballot == there; break;
                case VOTE_ANY: warp[j].result = ballot != 0; break;
                case VOTE_UNI: warp[j].result = ballot == there || ballot == 0; break;
                case VOTE_BALLOT: warp[j].result = ballot; break;
                case SYNC_WARP: break;
                default: shuffle(warp, &warp[j], size);
            }
        }
        for (uint32_t j = 0; j < size; j++)
            if (mask >> j & 1 && warp[j].state == IN_WARP) warp[j].state = READY;
    }
}

static uint64_t in_warp(Thread *t, int operation, uint64_t value, uint32_t choice, uint32_t bound, uint32_t mask, int line) {
    if (!(mask >> t->lane & 1)) fail(t, line, "lane %u is not among the lanes that it names, %#x", t->lane, mask);
    t->state = IN_WARP;
    t->operation = operation;
    t->value = value;
    t->choice = choice;
    t->bound = bound;
    t->mask = mask;
    t->line = line;
    meet_in_warp(t);
    switch_away(t);
    return t->result;
}

/* All threads of the block, or `expected` of them; returns how many came with a true value. */
static uint64_t barrier(Thread *t, uint32_t which, uint32_t expected, int aligned, uint64_t value, int line) {
    if (which > 15 || expected % WARP || expected > machine.threads)
        fail(t, line, "barrier %u for %u threads", which, expected);
    if (aligned)
        for (uint32_t i = 0; i < warp_size(t); i++) {
            Thread *other = &warp_of(t)[i];
            if (other->state == AT_BARRIER && other->line != line)
                fail(t, line, "threads of a warp wait at different barriers, here and at line %d", other->line);
        }
    t->state = AT_BARRIER;
    t->barrier = which;
    t->expected = expected;
    t->value = value;
    t->line = line;
    uint32_t here = 0, needed = expected ? expected : machine.threads;
    uint64_t count = 0;
    for (uint32_t i = 0; i < machine.threads; i++) {
        Thread *other = &t->block->threads[i];
        if (other->state != AT_BARRIER || other->barrier != which) continue;
        if (other->expected != expected) fail(t, line, "barrier %u for %u and for %u threads", which, expected, other->expected);
        here++;
        count += other->value != 0;
    }
    if (here == needed)
        for (uint32_t i = 0; i < machine.threads; i++) {
            Thread *other = &t->block->threads[i];
            if (other->state != AT_BARRIER || other->barrier != which) continue;
            other->state = READY;
            other->result = count;
        }
    switch_away(t);
    return t->result;
}
