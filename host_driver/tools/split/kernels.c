/* The stages of a connection's work on the host: each stage as a plain function, and the time that it takes.

   The functions that change octets are exported, so that their results can be compared with the software data path
   before any of them is timed. Names are those in host_driver/tools/split/stages.py. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define PLACE(nth) ((nth) * 148 % 512) /* of the nth FPDU behind the start of a marker: 128 places, unordered */
#define BARRIER(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

enum { INTERVAL = 512, GAP = INTERVAL - 4 };

/* --- CRC-32C (RFC 5044 §4.4) */

enum { WORDS = 512 }; /* largest number of words in a part */
static const uint32_t REFLECTED = 0x82F63B78u;
static uint32_t slices[8][256];
static uint32_t powers[2 * WORDS + 1]; /* [i]: x^(64 i - 33), reflected, as a factor of a carry-less product */

__attribute__((constructor)) static void prepare(void)
{
    for (unsigned octet = 0; octet < 256; octet++) {
        uint32_t crc = octet;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? REFLECTED : 0);
        slices[0][octet] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (unsigned octet = 0; octet < 256; octet++)
            slices[slice][octet] = slices[slice - 1][octet] >> 8 ^ slices[0][slices[slice - 1][octet] & 255];
    uint32_t power = 0x80000000u; /* x^0 */
    for (unsigned exponent = 0; exponent <= 64 * 2 * WORDS - 33; exponent++) {
        if (exponent % 64 == 31)
            powers[(exponent + 33) / 64] = power;
        power = power >> 1 ^ (power & 1 ? REFLECTED : 0);
    }
}

static uint64_t word(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

EXPORT uint32_t crc_table(const uint8_t *at, size_t n)
{
    uint32_t crc = ~0u;
    for (; n >= 8; n -= 8, at += 8) {
        uint64_t x = word(at) ^ crc;
        crc = slices[7][x & 255] ^ slices[6][x >> 8 & 255] ^ slices[5][x >> 16 & 255] ^ slices[4][x >> 24 & 255] ^
              slices[3][x >> 32 & 255] ^ slices[2][x >> 40 & 255] ^ slices[1][x >> 48 & 255] ^ slices[0][x >> 56];
    }
    while (n--)
        crc = crc >> 8 ^ slices[0][(crc ^ *at++) & 255];
    return ~crc;
}

static int always(void) { return 1; }

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t sse42_from(uint32_t crc, const uint8_t *at, size_t n)
{
    uint64_t sum = crc;
    for (; n >= 8; n -= 8, at += 8)
        sum = _mm_crc32_u64(sum, word(at));
    crc = (uint32_t)sum;
    while (n--)
        crc = _mm_crc32_u8(crc, *at++);
    return crc;
}

EXPORT uint32_t crc_sse42(const uint8_t *at, size_t n) { return ~sse42_from(~0u, at, n); }

/* Three parts in parallel: the crc32 instruction takes three cycles, and one can start in each cycle. The partial sums
   are then shifted and added. */
__attribute__((target("sse4.2,pclmul"))) EXPORT uint32_t crc_sse42x3(const uint8_t *at, size_t n)
{
    uint64_t crc = ~0u;
    while (n >= 192) {
        size_t words = n / 24 < WORDS ? n / 24 : WORDS, octets = 8 * words;
        uint64_t second = 0, third = 0;
        const uint8_t *end = at + octets - 8;
        for (; at != end; at += 8) {
            crc = _mm_crc32_u64(crc, word(at));
            second = _mm_crc32_u64(second, word(at + octets));
            third = _mm_crc32_u64(third, word(at + 2 * octets));
        }
        crc = _mm_crc32_u64(crc, word(at));
        second = _mm_crc32_u64(second, word(at + octets));
        __m128i far = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)powers[2 * words]), 0);
        __m128i near = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)second), _mm_cvtsi32_si128((int)powers[words]), 0);
        /* Both are products of 64 bits, which crc32 reduces: they are added to the last word of the third part. */
        uint64_t both = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(far, near));
        crc = _mm_crc32_u64(third, word(at + 2 * octets) ^ both);
        at += 2 * octets + 8;
        n -= 3 * octets;
    }
    return ~sse42_from((uint32_t)crc, at, n);
}

#define AVX512 __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

/* x times a power of x, which shifts it by a number of 64-bit words; plus other. */
AVX512 static inline __m512i folded(__m512i x, __m512i by, __m512i other)
{
    __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00), high = _mm512_clmulepi64_epi128(x, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, other, 0x96);
}

AVX512 static inline __m512i power(int words)
{
    return _mm512_broadcast_i32x4(_mm_set_epi64x(powers[words], powers[words + 1]));
}

AVX512 EXPORT uint32_t crc_vpclmul(const uint8_t *at, size_t n)
{
    if (n < 64)
        return ~sse42_from(~0u, at, n);
    __m512i x = _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));
    const __m512i by8 = power(8);
    if (n >= 512) {
        const __m512i by32 = power(32);
        __m512i y = _mm512_loadu_si512(at + 64), z = _mm512_loadu_si512(at + 128), w = _mm512_loadu_si512(at + 192);
        for (at += 256, n -= 256; n >= 256; at += 256, n -= 256) {
            x = folded(x, by32, _mm512_loadu_si512(at));
            y = folded(y, by32, _mm512_loadu_si512(at + 64));
            z = folded(z, by32, _mm512_loadu_si512(at + 128));
            w = folded(w, by32, _mm512_loadu_si512(at + 192));
        }
        x = folded(folded(folded(x, by8, y), by8, z), by8, w);
    } else {
        at += 64, n -= 64;
    }
    for (; n >= 64; at += 64, n -= 64)
        x = folded(x, by8, _mm512_loadu_si512(at));
    const __m512i inside = _mm512_set_epi64(0, 0, powers[2], powers[3], powers[4], powers[5], powers[6], powers[7]);
    __m512i sums = folded(x, inside, _mm512_maskz_mov_epi64(0xc0, x));
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
    __m128i sum = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum));
    crc = _mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(sum, 1));
    return ~sse42_from((uint32_t)crc, at, n);
}

static int has_sse42(void) { return __builtin_cpu_supports("sse4.2"); }
static int has_pclmul(void) { return has_sse42() && __builtin_cpu_supports("pclmul"); }
static int has_vpclmul(void)
{
    return has_pclmul() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("vpclmulqdq");
}

#elif defined(__aarch64__)

__attribute__((target("+crc"))) EXPORT uint32_t crc_armv8(const uint8_t *at, size_t n)
{
    uint32_t crc = ~0u;
    for (; n >= 8; n -= 8, at += 8)
        crc = __crc32cd(crc, word(at));
    while (n--)
        crc = __crc32cb(crc, *at++);
    return ~crc;
}

static int has_crc(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

#endif

/* --- markers (RFC 5044 §4.3) */

/* The library's memcpy, even if the compiler knows the length: the code that it would generate is slower here. */
static inline void move(uint8_t *to, const uint8_t *from, size_t n)
{
    __asm__("" : "+r"(n));
    memcpy(to, from, n);
}

static void put_marker(uint8_t *at, size_t fpduptr)
{
    at[0] = at[1] = 0;
    at[2] = (uint8_t)(fpduptr >> 8);
    at[3] = (uint8_t)fpduptr;
}

/* Copies n octets of an FPDU without its CRC, which begins place octets behind the start of a marker, and inserts
   markers. Returns the number of octets written. */
EXPORT size_t insert_markers(uint8_t *restrict to, const uint8_t *restrict from, size_t n, size_t place)
{
    uint8_t *begin = to, *header = to;
    size_t room = (INTERVAL - place) % INTERVAL; /* to the next marker */
    if (!room) {
        put_marker(to, 0);
        header = to += 4;
        room = GAP;
    }
    while (n >= room) {
        move(to, from, room);
        to += room, from += room, n -= room;
        put_marker(to, (size_t)(to - header));
        to += 4;
        room = GAP;
    }
    move(to, from, n);
    return (size_t)(to + n - begin);
}

/* Copies n octets without the markers among them. Returns the number of octets written, or 0 if an FPDUPTR is wrong. */
EXPORT size_t remove_markers(uint8_t *restrict to, const uint8_t *restrict from, size_t n, size_t place)
{
    uint8_t *begin = to;
    const uint8_t *header = place ? from : from + 4;
    size_t room = (INTERVAL - place) % INTERVAL;
    while (n >= room + 4) {
        move(to, from, room);
        to += room, from += room;
        size_t fpduptr = (size_t)from[2] << 8 | from[3];
        if (fpduptr != (from > header ? (size_t)(from - header) : 0))
            return 0;
        from += 4, n -= room + 4;
        room = GAP;
    }
    move(to, from, n);
    return (size_t)(to + n - begin);
}

/* --- the timed functions: one call does a stage's work for one FPDU */

struct work {
    const uint8_t *from;
    uint8_t *to;
    size_t n, place, piece, nth;
    uint64_t sink; /* a result of one call that the next call depends on, if an FPDU must wait for the one before */
};

enum { REGIONS = 1024, SLOTS = 4096 };
static struct region { uint32_t stag, access; uint64_t base, length; } regions[REGIONS];
static uint32_t slots[SLOTS];
static struct connection { uint32_t state, opcodes, msn, lengths; uint64_t sent; } connection = {1, 3, 1, 65535, 0};

static void copies(struct work *w) { memcpy(w->to, w->from, w->n); }
static void nothing(struct work *w) { (void)w; }
static void marker_insertion(struct work *w) { w->sink += insert_markers(w->to, w->from, w->n, w->place); }
static void marker_removal(struct work *w)
{
    size_t room = w->place ? INTERVAL - w->place : GAP;
    size_t markers = !w->place + (w->n < room ? 0 : 1 + (w->n - room) / GAP);
    if (remove_markers(w->to, w->from, w->n + 4 * markers, w->place) != w->n)
        abort();
}

static void crc32_table(struct work *w) { w->sink += crc_table(w->from, w->n); }
#if defined(__x86_64__)
static void crc32_sse42(struct work *w) { w->sink += crc_sse42(w->from, w->n); }
static void crc32_sse42x3(struct work *w) { w->sink += crc_sse42x3(w->from, w->n); }
static void crc32_vpclmul(struct work *w) { w->sink += crc_vpclmul(w->from, w->n); }
#elif defined(__aarch64__)
static void crc32_armv8(struct work *w) { w->sink += crc_armv8(w->from, w->n); }
#endif

/* Put ULPDU_Length before the ULPDU, and PAD behind it. */
static void framing_transmit(struct work *w)
{
    uint16_t length = (uint16_t)__builtin_bswap16((uint16_t)w->n);
    memcpy(w->to, &length, 2);
    memset(w->to + 2 + w->n, 0, 4);
    w->sink += (w->n + 5) & ~(size_t)3;
}

/* The next FPDU's position depends on this one's length: each call therefore reads at an address from the last call. */
static void framing_receive(struct work *w)
{
    uint16_t length;
    memcpy(&length, w->from + (w->sink & 1), 2);
    size_t octets = ((size_t)__builtin_bswap16(length) + 9) & ~(size_t)3;
    if (octets > 65540)
        abort();
    w->sink = octets & 1; /* it is always 0, but the next call must wait for it */
}

static void fence(struct work *w)
{
    if (!connection.state || w->n > connection.lengths)
        abort();
    connection.sent += w->n;
}

static void rtr_detection(struct work *w)
{
    uint8_t control = w->from[0], opcode = w->from[1] & 15;
    if (connection.state == 2 && connection.opcodes >> opcode & 1 && control)
        connection.state = 1;
    connection.msn++;
}

/* Make the header of a tagged segment (RFC 5041 §4.2). */
static void placement_transmit(struct work *w)
{
    uint32_t stag = __builtin_bswap32((uint32_t)w->nth);
    uint64_t offset = __builtin_bswap64(w->nth * w->n);
    w->to[0] = 0xc1, w->to[1] = 0x40;
    memcpy(w->to + 2, &stag, 4);
    memcpy(w->to + 6, &offset, 8);
}

/* Check that the STag is valid, and that it permits a write at the segment's position (RFC 5041 §7.1). */
static void placement_receive(struct work *w)
{
    const struct region *region = &regions[(w->nth * 2654435761u >> 7) % REGIONS];
    uint64_t offset = region->base + (w->nth & 255);
    if (region->stag != (uint32_t)(region - regions) || !(region->access & 1) || offset < region->base ||
        offset + w->n > region->base + region->length)
        abort();
    w->sink += offset;
}

/* Copy n octets into pieces at scattered addresses. */
static void scatter(struct work *w)
{
    size_t done = 0, nth = w->nth * 64;
    for (; done < w->n; nth++) {
        size_t octets = w->n - done < w->piece ? w->n - done : w->piece;
        memcpy(w->to + slots[nth % SLOTS] * (size_t)64, w->from + done, octets);
        done += octets;
    }
}

static const struct kernel {
    const char *name;
    void (*call)(struct work *);
    int (*there)(void);
} kernels[] = {
    {"nothing", nothing, always},
    {"copies", copies, always},
    {"scatter", scatter, always},
    {"marker-insertion", marker_insertion, always},
    {"marker-removal", marker_removal, always},
    {"framing-transmit", framing_transmit, always},
    {"framing-receive", framing_receive, always},
    {"fence", fence, always},
    {"rtr-detection", rtr_detection, always},
    {"placement-transmit", placement_transmit, always},
    {"placement-receive", placement_receive, always},
    {"crc-table", crc32_table, always},
#if defined(__x86_64__)
    {"crc-sse42", crc32_sse42, has_sse42},
    {"crc-sse42x3", crc32_sse42x3, has_pclmul},
    {"crc-vpclmul", crc32_vpclmul, has_vpclmul},
#elif defined(__aarch64__)
    {"crc-armv8", crc32_armv8, has_crc},
#endif
};

/* Returns the name of a kernel, "" if this processor cannot run it, or NULL behind the last kernel. */
EXPORT const char *kernel_name(size_t nth)
{
    if (nth >= sizeof kernels / sizeof *kernels)
        return NULL;
    return kernels[nth].there() ? kernels[nth].name : "";
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Returns the nanoseconds of one of many calls with n octets. Each call reads at another place within span octets. room
   holds twice span and 65536 more: octets to read, then octets to write. Kernel "nothing" measures the loop itself. */
EXPORT double nanoseconds(size_t nth, uint8_t *room, size_t span, size_t n, size_t piece, long calls)
{
    if (!regions[1].stag)
        for (uint32_t each = 0; each < REGIONS; each++)
            regions[each] = (struct region){each, 1, (uint64_t)each << 20, 1 << 20};
    if (!slots[1]) {
        for (uint32_t each = 0; each < SLOTS; each++)
            slots[each] = each;
        uint32_t random = 1;
        for (uint32_t each = SLOTS - 1; each; each--) {
            random = random * 1664525u + 1013904223u;
            uint32_t other = (random >> 8) % (each + 1), kept = slots[each];
            slots[each] = slots[other], slots[other] = kept;
        }
    }
    struct work w = {.n = n, .piece = piece};
    void (*call)(struct work *) = kernels[nth].call;
    size_t step = (n + n / 64 + 255) & ~(size_t)63, at = 0; /* with room for markers */
    uint8_t *to = room + span + 65536 + 2048; /* at another offset within a page than the source: equal ones are slow */
    if (call == marker_removal)
        for (; at + step <= span || !at; at += step) {
            memset(to, 0, n);
            insert_markers(room + at, to, n, PLACE(at / step));
        }
    at = 0;
    size_t slot = 0;
    double start = now();
    for (long done = 0; done < calls; done++) {
        w.from = room + at + (w.sink >> 63); /* adds 0, but waits for the result of a CRC */
        w.to = to + (call == scatter ? 0 : at);
        w.place = PLACE(slot);
        w.nth = (size_t)done;
        call(&w);
        BARRIER(&w);
        at += step, slot++;
        if (at + step > span)
            at = slot = 0;
    }
    return (now() - start) / (double)calls;
}

/* --- TCP in the operating system (RFC 9293) */

static double spent(void) /* nanoseconds of processor time of this thread, in the kernel, too */
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Sends n octets in each call; returns the nanoseconds of processor time of a call, or -1 if the socket fails. */
EXPORT double tcp_send(int socket, const uint8_t *from, size_t n, long calls)
{
    double start = spent();
    for (long done = 0; done < calls; done++)
        for (size_t sent = 0; sent < n;) {
            ssize_t more = send(socket, from + sent, n - sent, 0);
            if (more <= 0)
                return -1;
            sent += (size_t)more;
        }
    return (spent() - start) / (double)calls;
}

/* Receives what tcp_send sends at the other end, in calls that take up to room octets. */
EXPORT double tcp_receive(int socket, uint8_t *to, size_t room, size_t n, long calls)
{
    double start = spent();
    for (size_t left = n * (size_t)calls; left;) {
        ssize_t more = recv(socket, to, left < room ? left : room, 0);
        if (more <= 0)
            return -1;
        left -= (size_t)more;
    }
    return (spent() - start) / (double)calls;
}

/* --- the clock */

/* Returns the clock in cycles per nanosecond, from a chain of XORs that each depend on the one before. Additions would
   not do: some processors execute additions of constants ahead of time, at no cost. */
EXPORT double clock_ghz(long steps)
{
    uint64_t sum = 1, other = (uint64_t)steps;
    double start = now();
    for (long done = 0; done < steps; done += 16) {
#define STEP __asm__ volatile("" : "+r"(sum), "+r"(other)); sum ^= other;
        STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP
#undef STEP
    }
    __asm__ volatile("" : : "r"(sum));
    return (double)steps / (now() - start);
}

/* Returns the rate of the constant-rate counter per nanosecond, or 0 if there is none that a program can read. */
EXPORT double counter_ghz(long nanoseconds_to_wait)
{
    double start = now();
#if defined(__x86_64__)
    uint64_t first = __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t first;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(first));
#else
    return 0 * start * (double)nanoseconds_to_wait;
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    while (now() - start < (double)nanoseconds_to_wait)
        ;
#if defined(__x86_64__)
    uint64_t last = __builtin_ia32_rdtsc();
#else
    uint64_t last;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(last));
#endif
    return (double)(last - first) / (now() - start);
#endif
}
