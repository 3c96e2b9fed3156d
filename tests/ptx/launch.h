/* A launch: blocks in turn, or a few at once and everything in a random order if there is a seed. */

static Thread *starting;

static void fibre(void) {
    Thread *t = starting;
    start(t);
    t->state = LEFT;
    meet_in_warp(t);
    for (;;) switch_away(t);
}

static void shuffle_order(uint64_t *order, uint64_t n) {
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = next_random() % i, x = order[i - 1];
        order[i - 1] = order[j];
        order[j] = x;
    }
}

static void prepare(Block *block, uint64_t number, unsigned char *stacks) {
    for (int d = 0; d < 3; d++) {
        block->ctaid[d] = (uint32_t)(number % machine.nctaid[d]);
        number /= machine.nctaid[d];
    }
    make_garbage(block->shared, machine.shared_size);
    for (uint32_t i = 0; i < machine.threads; i++) {
        Thread *t = &block->threads[i];
        unsigned char *local = t->local;
        memset(t, 0, sizeof *t);
        uint32_t rest = i;
        for (int d = 0; d < 3; d++) {
            t->tid[d] = rest % machine.ntid[d];
            rest /= machine.ntid[d];
        }
        t->index = i;
        t->lane = i % WARP;
        t->block = block;
        t->garbage = next_random();
        t->local = local;
        make_garbage(local, machine.local_size);
        getcontext(&t->context);
        t->context.uc_stack.ss_sp = stacks + (uint64_t)i * STACK;
        t->context.uc_stack.ss_size = STACK;
        makecontext(&t->context, fibre, 0);
    }
}

static void deadlock(Thread *t) {
    uint32_t count[4] = {0};
    for (uint32_t i = 0; i < machine.threads; i++) count[t->block->threads[i].state]++;
    snprintf(machine.message, sizeof machine.message,
             "deadlock: of the block's threads, %u wait at a barrier, %u for lanes of their warp, and %u have left",
             count[AT_BARRIER], count[IN_WARP], count[LEFT]);
    machine.failed = t;
    machine.line = t->line;
}

/* Passes over all threads until every one has left. */
static void run(Block *blocks, uint64_t n_blocks, uint64_t *order) {
    uint64_t n = n_blocks * machine.threads;
    for (uint64_t i = 0; i < n; i++) order[i] = i;
    for (;;) {
        if (machine.seed) shuffle_order(order, n);
        Thread *waiting = 0;
        int ready = 0;
        for (uint64_t i = 0; i < n; i++) {
            Thread *t = &blocks[order[i] / machine.threads].threads[order[i] % machine.threads];
            if (t->state == AT_BARRIER || t->state == IN_WARP) waiting = t;
            if (t->state != READY) continue;
            ready = 1;
            if (machine.seed && next_random() >> 63) continue;  /* some run ahead, others stay behind */
            starting = t;
            swapcontext(&machine.scheduler, &t->context);
            if (machine.failed) return;
        }
        if (!ready) {
            if (waiting) deadlock(waiting);
            return;
        }
    }
}

/* 0, or 1 if there was a fault. `where` takes the block and the thread. */
int launch(const uint32_t *grid, const uint32_t *block, uint64_t shared, uint64_t local, unsigned char *params,
           const Range *ranges, int n_ranges, int checked, uint64_t seed, uint64_t limit, uint32_t *where) {
    memset(&machine, 0, sizeof machine);
    memcpy(machine.nctaid, grid, sizeof machine.nctaid);
    memcpy(machine.ntid, block, sizeof machine.ntid);
    machine.threads = block[0] * block[1] * block[2];
    machine.shared_size = shared;
    machine.local_size = local;
    machine.params = params;
    machine.ranges = ranges;
    machine.n_ranges = n_ranges;
    machine.checked = checked;
    machine.seed = machine.random = seed;
    machine.limit = limit;

    uint64_t total = (uint64_t)grid[0] * grid[1] * grid[2], most = seed && total > 1 ? RESIDENT : 1;
    uint64_t room = most * machine.threads * (uint64_t)STACK;
    unsigned char *stacks = mmap(0, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) abort();
    Block *blocks = calloc(most, sizeof *blocks);
    uint64_t *order = calloc(most * machine.threads, sizeof *order), *turn = calloc(total, sizeof *turn);
    uint64_t frame = (local + 63) / 64 * 64, span = (shared + 63) / 64 * 64 + 64;
    unsigned char *frames = aligned_alloc(64, most * machine.threads * frame + 64);
    unsigned char *spans = aligned_alloc(64, most * span);
    for (uint64_t b = 0; b < most; b++) {
        blocks[b].shared = spans + b * span;
        blocks[b].threads = calloc(machine.threads, sizeof(Thread));
        for (uint32_t i = 0; i < machine.threads; i++)
            blocks[b].threads[i].local = frames + (b * machine.threads + i) * frame;
    }
    for (uint64_t i = 0; i < total; i++) turn[i] = i;
    if (seed) shuffle_order(turn, total);
    for (uint64_t done = 0; done < total && !machine.failed; done += most) {
        uint64_t now = total - done < most ? total - done : most;
        for (uint64_t b = 0; b < now; b++)
            prepare(&blocks[b], turn[done + b], stacks + b * machine.threads * (uint64_t)STACK);
        run(blocks, now, order);
    }
    if (machine.failed) {
        memcpy(where, machine.failed->block->ctaid, 12);
        memcpy(where + 3, machine.failed->tid, 12);
    }
    for (uint64_t b = 0; b < most; b++) free(blocks[b].threads);
    free(blocks); free(order); free(turn); free(frames); free(spans);
    munmap(stacks, room);
    return machine.failed != 0;
}

const char *fault_message(void) { return machine.message; }
int fault_line(void) { return machine.line; }
