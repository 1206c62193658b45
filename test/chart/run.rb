# frozen_string_literal: true

# The tests of the chart: the consistency of its files and, where Go is installed, that it lints, that its output is valid for Kubernetes, and
# that servers understand its settings.
#
#   ruby test/chart/run.rb              everything
#   ruby test/chart/run.rb -n /grace/   minitest's own options
#
# FIREBRICK  the program; otherwise target/release/firebrick
# GO         the command of Go; KUBE_CACHE  where the checker is kept (deploy/kube/lab/cache.rb)

ENV["MT_NO_PLUGINS"] ||= "1"
require "minitest"
require "minitest/test"

Dir[File.join(__dir__, "*_test.rb")].sort.each { |file| require file }
exit(Minitest.run(ARGV))
