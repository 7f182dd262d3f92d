#!/bin/bash
# Repeats the tests that depend on time, on a machine that is busy: says how often each failed. A test that fails now
# and then is found here, and not by who changes something else.
#
#   scripts/repeat-tests.sh TIMES [TEST…]    the tests of the list below, or others
#
# BESIDE=N: loops that compute beside them, instead of one for each processor; with BESIDE=0 RUST_TEST_THREADS=4 tests
# keep it busy themselves. Failures are left in target/repeated.
set -euo pipefail
cd "$(dirname "$0")/.."
times=${1:?how often}
shift
# What was ever repaired because a busy machine made it fail, and what compares durations.
timed=(
  allocations::functions_get_what_they_allocate_however_long_they_run
  android::framework::loops_frames_and_calls_are_those_of_the_framework
  art::app::a_killed_app_leaves_the_names_of_its_java_frames
  art::app::the_next_start_says_how_the_last_run_ended
  attach::descendants::processes_that_were_there_are_recorded_when_asked_for
  attach::running_program::a_program_that_is_stopped_meanwhile_goes_on
  attach::running_program::a_recorder_that_is_killed_while_it_uses_a_thread_leaves_the_program_whole
  attach::running_program::modules_that_come_and_go_meanwhile_are_left_alone
  attach::running_program::nobody_takes_a_program_from_another_recorder
  attach::running_program::threads_that_share_a_processor_are_met_soon
  attach::running_program::threads_that_wait_are_not_woken_by_the_end_of_children
  attach::waiting::a_program_whose_loader_is_held_is_said_not_to_answer
  attach::waiting::the_stopped_thread_finds_its_call_whole_on_a_busy_processor
  attach::waiting::they_have_rows_when_capturing_begins_later
  attach::waiting::threads_that_wait_since_before_have_rows
  attach::waiting::what_the_stopped_thread_waits_for_is_known
  control::budget::a_thread_with_expensive_stacks_is_slowed_alone
  control::changed_settings::what_is_changed_while_it_runs_stands_in_the_trace
  crashes::a_dump_reaches_back_from_the_crash_however_long_the_death_takes
  evidence::an_interval_and_the_number_of_samples_agree
  evidence::shares_have_their_intervals
  evidence::the_begin_and_the_end_of_short_processes_say_nothing_of_their_time
  first_screen::a_recording_ends_with_what_it_found_what_it_cost_and_what_to_type
  gate::runs::traces_that_cannot_be_compared_are_refused_or_named
  gate::system_calls::twice_as_many_bytes_in_as_many_calls_are_found_with_their_function
  hostile::bad_input::a_full_disk_does_not_touch_the_program_and_leaves_what_fitted
  hostile::hostile_programs::a_daemon_goes_on_and_is_recorded_when_waited_for
  hostile::hostile_programs::blocking_calls_are_not_cut_short_while_other_threads_run
  hostile::hostile_programs::forks_vforks_and_posix_spawns
  hostile::hostile_programs::replacing_every_signal_handler_and_blocking_every_signal
  hostile::hostile_programs::very_many_threads
  in_process::no_thread_of_the_session_waits_for_the_programs_malloc
  in_process::nothing_wakes_up_while_the_program_idles
  in_process::redis_is_the_same_from_inside_as_from_outside
  in_process::steered::a_ring_inside_has_the_newest_samples
  in_process::steered::a_session_inside_is_steered_as_one_outside
  in_process::who_waits_at_the_end_is_known_with_its_stack
  independent::shares_of_a_computing_program_are_true_and_agree_with_perf
  independent::the_stack_of_a_blocked_program_equals_that_of_gdb
  interruptions::redis_and_its_benchmark
  jit::builtins_of_v8_have_names_where_it_has_copied_them
  jit::code_that_nothing_names_is_summed_up_by_program
  jit::each_sample_has_the_name_that_its_code_had_then
  jit::php_functions_have_names_where_its_switch_is_set
  kernel_clock::a_process_that_computes_for_long_leaves_its_events
  kernel_clock::a_process_that_computes_for_long_leaves_the_ticks
  kernel_clock::a_thread_that_blocks_the_signal_stays_on_ticks
  kernel_clock::page_faults_are_time_of_the_function_that_touches_the_pages
  kernel_clock::processes_without_this_clock_are_on_ticks
  kernel_clock::shares_are_true_beside_rivals_for_the_processor
  kernel_clock::shares_beside_rivals_are_those_of_the_samples
  kernel_clock::system_calls_get_no_time_of_what_runs_between_them
  live_view::a_process_is_shown_on_a_terminal_and_left_as_it_was
  marks::scopes::dumps_know_what_happened_inside_of_scopes
  programs::redis_server_under_its_own_benchmark
  python::waits_that_never_end_have_python_stacks
  ruby::samples_at_any_moment_show_calls_that_are_there
  ruby::waits_that_never_end_have_rubys_stacks
  servers::counters::counters_of_a_worker_of_nginx_are_those_of_the_kernel
  servers::coverage::a_query_of_postgres_is_seen
  servers::coverage::a_thread_that_blocks_the_first_signal_is_seen_by_the_second
  system_calls::python_makes_as_many_calls_of_each_kind_as_strace_counts
  unrecorded::a_static_program_that_replaces_an_agents_image_is_named
  waits::no_waits::a_read_from_the_page_cache_is_no_wait_whatever_the_clock
  waits::real::redis_and_its_clients
)
(($# == 0)) || timed=("$@")
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
cargo test --workspace --locked --no-run --all-targets
export STACKBEAT_TESTS_BUILT=1
tests() { cargo test --workspace --locked --no-fail-fast --test main -- --exact "$@"; }
known=$(tests --list 2>/dev/null)
for test in "${timed[@]}"; do
  grep -qx "$test: test" <<<"$known" || { echo "repeat-tests.sh: no test is called $test" >&2; exit 2; }
done

loops=()
trap '((${#loops[@]} == 0)) || kill "${loops[@]}"' EXIT
for _ in $(seq "${BESIDE:-$(nproc)}"); do
  while :; do :; done &
  loops+=($!)
done

failures=target/repeated
mkdir -p "$failures"
declare -A failed
for pass in $(seq "$times"); do
  log=$failures/$(date +%Y%m%dT%H%M%S)
  tests "${timed[@]}" >"$log" 2>&1 && { rm "$log"; echo "pass $pass: ok"; continue; }
  names=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log")
  echo "pass $pass: ${names:-it did not end, see $log}"
  for name in ${names:-binary}; do failed[$name]=$((${failed[$name]:-0} + 1)); done
done
for name in "${!failed[@]}"; do echo "$name: failed in ${failed[$name]} of $times"; done
((${#failed[@]} == 0))
