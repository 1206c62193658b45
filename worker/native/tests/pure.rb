# frozen_string_literal: true

# With FIREBRICK_PURE=1 the same tests run against the worker in plain Ruby. These are the differences, and the reasons.
module Pure
  OFFERS = "nothing is offered: only native code can write memory that cannot change meanwhile"
  LARGE = "large strings go in BODY frames: a file would be one more copy in Ruby"
  FIBERS = "it serves with threads"

  DIFFERENCES = {
    "BodiesTest#test_large_arrays_travel_as_files" => LARGE,
    "BodiesTest#test_large_arrays_of_many_parts_travel_as_files_at_once" => LARGE,
    "BrokenAppsTest#test_a_killed_worker_is_reported" => "Ruby does not tell the peak memory of a process",
    "TimingTest#test_threads_in_each_others_way_wait_for_the_gvl" => "Ruby does not tell Ruby code",
    "TimingTest#test_a_measured_request_tells_what_was_work" => "Ruby does not tell Ruby code how long it waits for the GVL",
    "PromotionTest#test_threads_of_the_app_do_not_follow" => "its own threads are Ruby's, and the test counts them",
    "AllocationsTest" => "it cannot follow objects", "HeapTest" => "it cannot reach the heap", "LoanTest" => OFFERS, "FibersTest" => FIBERS, "FibersInterruptsTest" => FIBERS, "PreemptTest" => FIBERS, "BlockingTest" => FIBERS,
    "PoolsTest" => FIBERS
  }.freeze

  module_function

  def run? = ENV["FIREBRICK_PURE"] == "1"

  # Returns the reason why the test cannot hold; nil when it can.
  def difference(test)
    DIFFERENCES.values_at(test.class.name, "#{test.class.name}##{test.name}").compact.first if run?
  end
end
