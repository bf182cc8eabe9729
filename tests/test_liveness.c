/* Liveness: temps that live together never overlap, and the block is not larger than it has to be. */
#include "offload/liveness.h"

#include "tests/tmpdir.h"

enum { N_OPS = 40, BUFS_MAX = 48, N_PROGRAMS = 400 };

/* splitmix64 */
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static dfx_buf temp(size_t bytes, uint32_t first_op, uint32_t last_op) {
    return (dfx_buf){
        .kind = DFX_BUF_TEMP, .bytes = bytes, .first_op = first_op, .last_op = last_op};
}

static size_t aligned(const dfx_buf *buf) {
    return dfx_align_up(buf->bytes, DFX_ACT_ALIGN);
}

static uint32_t random_bufs(uint64_t seed, dfx_buf bufs[BUFS_MAX]) {
    uint64_t state = seed;
    uint32_t n = 2 + (uint32_t)(next(&state) % (BUFS_MAX - 2));
    for (uint32_t i = 1; i < n; i++) {
        uint32_t first = (uint32_t)(next(&state) % N_OPS);
        uint32_t life = (uint32_t)(next(&state) % (next(&state) % 8 == 0 ? N_OPS : 6));
        uint32_t last = first + life < N_OPS ? first + life : N_OPS - 1;
        bufs[i] = temp(1 + next(&state) % 5000, first, last);
    }
    return n;
}

static void check_no_overlap(const dfx_buf *bufs, uint32_t n, size_t block_bytes) {
    for (uint32_t i = 1; i < n; i++) {
        assert_int_equal(bufs[i].off % DFX_ACT_ALIGN, 0);
        assert_true(bufs[i].off + bufs[i].bytes <= block_bytes);
        for (uint32_t j = 1; j < i; j++) {
            bool together =
                bufs[i].first_op <= bufs[j].last_op && bufs[j].first_op <= bufs[i].last_op;
            bool apart = bufs[i].off + bufs[i].bytes <= bufs[j].off ||
                         bufs[j].off + bufs[j].bytes <= bufs[i].off;
            assert_true(!together || apart);
        }
    }
}

static void liveness_of_random_programs_never_overlaps(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_PROGRAMS; seed++) {
        dfx_buf bufs[BUFS_MAX] = {{0}};
        uint32_t n = random_bufs(seed, bufs);
        size_t block_bytes;
        assert_int_equal(dfx_liveness_place(bufs, n, NULL, &block_bytes), DFX_OK);
        check_no_overlap(bufs, n, block_bytes);
    }
}

static void liveness_block_is_between_live_sum_and_whole_sum(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_PROGRAMS; seed++) {
        dfx_buf bufs[BUFS_MAX] = {{0}};
        uint32_t n = random_bufs(seed + N_PROGRAMS, bufs);
        size_t block_bytes, whole = 0, most_alive = 0;
        assert_int_equal(dfx_liveness_place(bufs, n, NULL, &block_bytes), DFX_OK);
        for (uint32_t i = 1; i < n; i++)
            whole += aligned(&bufs[i]);
        for (uint32_t op = 0; op < N_OPS; op++) {
            size_t alive = 0;
            for (uint32_t i = 1; i < n; i++)
                if (bufs[i].first_op <= op && op <= bufs[i].last_op)
                    alive += aligned(&bufs[i]);
            most_alive = alive > most_alive ? alive : most_alive;
        }
        assert_true(block_bytes <= whole);
        assert_true(block_bytes >= most_alive);
    }
}

/* A chain: each temp dies at the op that makes the next but one. Two places are enough. */
static void liveness_of_a_chain_needs_two_places(void **state) {
    (void)state;
    dfx_buf bufs[11] = {{0}};
    size_t block_bytes;
    for (uint32_t i = 1; i < 11; i++)
        bufs[i] = temp(1000, i - 1, i);
    assert_int_equal(dfx_liveness_place(bufs, 11, NULL, &block_bytes), DFX_OK);
    check_no_overlap(bufs, 11, block_bytes);
    assert_int_equal(block_bytes, 2 * 1024);
}

/* One op's input and output meet at that op. */
static void liveness_of_input_and_output_of_one_op_is_apart(void **state) {
    (void)state;
    dfx_buf bufs[3] = {{0}, temp(256, 0, 5), temp(256, 5, 9)};
    size_t block_bytes;
    assert_int_equal(dfx_liveness_place(bufs, 3, NULL, &block_bytes), DFX_OK);
    assert_int_not_equal(bufs[1].off, bufs[2].off);
    assert_int_equal(block_bytes, 512);
}

static void liveness_of_later_temp_takes_the_place(void **state) {
    (void)state;
    dfx_buf bufs[3] = {{0}, temp(256, 0, 4), temp(256, 5, 9)};
    size_t block_bytes;
    assert_int_equal(dfx_liveness_place(bufs, 3, NULL, &block_bytes), DFX_OK);
    assert_int_equal(bufs[1].off, bufs[2].off);
    assert_int_equal(block_bytes, 256);
}

static void liveness_leaves_externs_weights_and_unused_temps_alone(void **state) {
    (void)state;
    dfx_buf bufs[4] = {{0},
                       {.kind = DFX_BUF_EXTERN, .bytes = 4096, .last_op = 3, .off = 77},
                       {.kind = DFX_BUF_WEIGHT, .bytes = 4096, .last_op = 3, .off = 77},
                       {.kind = DFX_BUF_TEMP, .bytes = 4096, .first_op = UINT32_MAX, .off = 77}};
    size_t block_bytes;
    assert_int_equal(dfx_liveness_place(bufs, 4, NULL, &block_bytes), DFX_OK);
    assert_int_equal(block_bytes, 0);
    for (int i = 1; i < 4; i++)
        assert_int_equal(bufs[i].off, 77);
}

static void liveness_gives_same_places_each_time(void **state) {
    (void)state;
    dfx_buf first[BUFS_MAX] = {{0}}, again[BUFS_MAX] = {{0}};
    size_t block_bytes;
    uint32_t n = random_bufs(3, first);
    assert_int_equal(random_bufs(3, again), n);
    assert_int_equal(dfx_liveness_place(first, n, NULL, &block_bytes), DFX_OK);
    assert_int_equal(dfx_liveness_place(again, n, NULL, &block_bytes), DFX_OK);
    for (uint32_t i = 1; i < n; i++)
        assert_int_equal(first[i].off, again[i].off);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(liveness_of_random_programs_never_overlaps),
        cmocka_unit_test(liveness_block_is_between_live_sum_and_whole_sum),
        cmocka_unit_test(liveness_of_a_chain_needs_two_places),
        cmocka_unit_test(liveness_of_input_and_output_of_one_op_is_apart),
        cmocka_unit_test(liveness_of_later_temp_takes_the_place),
        cmocka_unit_test(liveness_leaves_externs_weights_and_unused_temps_alone),
        cmocka_unit_test(liveness_gives_same_places_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
