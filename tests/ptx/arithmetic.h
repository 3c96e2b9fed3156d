/* What PTX computes where C says it otherwise. Registers are raw bits; each function follows the text of the PTX ISA. */
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef unsigned __int128 uint128_t;
typedef __int128 int128_t;

static inline double as_f64(uint64_t bits) { double x; memcpy(&x, &bits, 8); return x; }
static inline float as_f32(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline uint64_t bits_f64(double x) { uint64_t bits; memcpy(&bits, &x, 8); return bits; }
static inline uint32_t bits_f32(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

/* ---- floats ------------------------------------------------------------------------------------------------------ */

static inline float ftz_f32(float x) { return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x; }
static inline double ftz_f64(double x) { return fpclassify(x) == FP_SUBNORMAL ? copysign(0, x) : x; }
static inline float sat_f32(float x) { return !(x > 0) ? 0 : x > 1 ? 1 : x; }
static inline double sat_f64(double x) { return !(x > 0) ? 0 : x > 1 ? 1 : x; }
/* NaN of f32 is one pattern on the GPU; of f64 the payload is not specified, and stays as this CPU makes it */
static inline float nan_f32(float x) { return x != x ? as_f32(0x7fffffffu) : x; }
static inline double nan_f64(double x) { return x; }

/* Volatile, so that the operation stays between the two changes of the rounding mode. */
#define ROUNDED(name, type, result, expression)                                                                        \
    static __attribute__((noinline, unused)) result name(int mode, type a, type b, type c) {                           \
        volatile type x = a, y = b, z = c;                                                                             \
        fesetround(mode);                                                                                              \
        volatile result d = (expression);                                                                              \
        fesetround(FE_TONEAREST);                                                                                      \
        (void)x; (void)y; (void)z;                                                                                     \
        return d;                                                                                                      \
    }
#define ROUNDED_BOTH(name, expression, expression_f)                                                                   \
    ROUNDED(name##_f64, double, double, expression)                                                                    \
    ROUNDED(name##_f32, float, float, expression_f)
ROUNDED_BOTH(add, x + y, x + y)
ROUNDED_BOTH(sub, x - y, x - y)
ROUNDED_BOTH(mul, x * y, x * y)
ROUNDED_BOTH(div, x / y, x / y)
ROUNDED_BOTH(fma, fma(x, y, z), fmaf(x, y, z))
ROUNDED_BOTH(sqrt, sqrt(x), sqrtf(x))
ROUNDED(f32_of_f64, double, float, (float)x)
ROUNDED(f64_of_s64, int64_t, double, (double)x)
ROUNDED(f64_of_u64, uint64_t, double, (double)x)
ROUNDED(f32_of_s64, int64_t, float, (float)x)
ROUNDED(f32_of_u64, uint64_t, float, (float)x)

#define MINMAX(type, bits, canonical)                                                                                  \
    static inline type min_##bits(type a, type b) {                                                                    \
        if (a != a) return b != b ? canonical : b;                                                                     \
        if (b != b) return a;                                                                                          \
        return a == b ? (signbit(a) ? a : b) : a < b ? a : b;                                                          \
    }                                                                                                                  \
    static inline type max_##bits(type a, type b) {                                                                    \
        if (a != a) return b != b ? canonical : b;                                                                     \
        if (b != b) return a;                                                                                          \
        return a == b ? (signbit(a) ? b : a) : a > b ? a : b;                                                          \
    }
MINMAX(float, f32, as_f32(0x7fffffffu))
MINMAX(double, f64, as_f64(0x7fffffffffffffffull))

/* The approximations are given to the nearest bit, which no GPU promises: good enough where code refines them, and
   within what the ISA allows elsewhere. Those of f64 see and give the upper 32 bits only. */
static inline float ex2_f32(float x) { return (float)exp2((double)x); }
static inline float lg2_f32(float x) { return (float)log2((double)x); }
static inline float sin_f32(float x) { return (float)sin((double)x); }
static inline float cos_f32(float x) { return (float)cos((double)x); }
static inline float tanh_f32(float x) { return (float)tanh((double)x); }
static inline float rsqrt_f32(float x) { return (float)(1 / sqrt((double)x)); }
static inline uint64_t upper(uint64_t bits) { return bits & 0xffffffff00000000ull; }
static inline double rcp_seed(double x) {
    return as_f64(upper(bits_f64(ftz_f64(1 / ftz_f64(as_f64(upper(bits_f64(x))))))));
}
static inline double rsqrt_seed(double x) {
    return as_f64(upper(bits_f64(1 / sqrt(ftz_f64(as_f64(upper(bits_f64(x))))))));
}

/* Saturates; NaN is 0 between types of 32 bits and fewer, else the top bit alone. `x` is integral, or not finite. */
static inline uint64_t integer_of(double x, int is_signed, int width, int from_f64) {
    if (x != x) return from_f64 || width == 64 ? 1ull << (width - 1) : 0;
    double top = ldexp(1, is_signed ? width - 1 : width);
    if (is_signed) {
        if (x >= top) return (1ull << (width - 1)) - 1;
        return (uint64_t)(x <= -top ? -(int64_t)((1ull << (width - 1)) - 1) - 1 : (int64_t)x);
    }
    if (x >= top) return width == 64 ? ~0ull : (1ull << width) - 1;
    return x <= 0 ? 0 : (uint64_t)x;
}

static inline int128_t clamp(int128_t x, int is_signed, int width) {
    int128_t high = ((int128_t)1 << (is_signed ? width - 1 : width)) - 1, low = is_signed ? -high - 1 : 0;
    return x < low ? low : x > high ? high : x;
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static inline uint64_t shl(uint64_t a, uint32_t n, int width) { return n >= (uint32_t)width ? 0 : a << n; }
static inline uint64_t shr_u(uint64_t a, uint32_t n, int width) { return n >= (uint32_t)width ? 0 : a >> n; }
static inline int64_t shr_s(int64_t a, uint32_t n, int width) { return a >> (n >= (uint32_t)width ? width - 1 : n); }
static inline uint32_t shf_l(uint32_t a, uint32_t b, uint32_t n) {
    return n >= 32 ? a : (uint32_t)((((uint64_t)b << 32 | a) << n) >> 32);
}
static inline uint32_t shf_r(uint32_t a, uint32_t b, uint32_t n) {
    return n >= 32 ? b : (uint32_t)(((uint64_t)b << 32 | a) >> n);
}

static inline uint64_t bfe(uint64_t a, uint32_t b, uint32_t c, int is_signed, int width) {
    uint32_t position = b & 0xff, length = c & 0xff, top = (uint32_t)width - 1;
    uint32_t last = position + length - 1 < top ? position + length - 1 : top;
    uint64_t sign = is_signed && length ? a >> last & 1 : 0, d = 0;
    for (uint32_t i = 0; i <= top; i++)
        d |= (i < length && position + i <= top ? a >> (position + i) & 1 : sign) << i;
    return d;
}
static inline uint64_t bfi(uint64_t a, uint64_t b, uint32_t c, uint32_t d, int width) {
    uint32_t position = c & 0xff, length = d & 0xff;
    for (uint32_t i = 0; i < length && position + i < (uint32_t)width; i++)
        b = (b & ~(1ull << (position + i))) | (a >> i & 1) << (position + i);
    return b;
}
static inline uint32_t bfind(uint64_t a, int width, int shiftamt) {
    for (int i = width - 1; i >= 0; i--)
        if (a >> i & 1) return (uint32_t)(shiftamt ? width - 1 - i : i);
    return 0xffffffffu;
}
static inline uint64_t brev(uint64_t a, int width) {
    uint64_t d = 0;
    for (int i = 0; i < width; i++) d |= (a >> i & 1) << (width - 1 - i);
    return d;
}
static inline uint32_t clz(uint64_t a, int width) { return a ? (uint32_t)(__builtin_clzll(a) - (64 - width)) : width; }
static inline uint32_t szext(uint32_t a, uint32_t n, int is_signed) {
    if (n == 0) return 0;
    if (n >= 32) return a;
    uint32_t mask = (1u << n) - 1;
    return is_signed && a >> (n - 1) & 1 ? a | ~mask : a & mask;
}
static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t c) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t byte = bytes >> (c >> 4 * i & 7) * 8 & 0xff;
        d |= (c >> 4 * i & 8 ? (byte & 0x80 ? 0xffu : 0) : byte) << 8 * i;
    }
    return d;
}
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t d = 0;
    for (int i = 0; i < 32; i++) d |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
    return d;
}
