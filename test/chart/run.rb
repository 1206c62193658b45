# frozen_string_literal: true

# The tests of the chart: what its files say of each other, and, where Go is, that it lints, that what it renders is as Kubernetes wants it, and
# that servers understand what it tells them.
#
#   ruby test/chart/run.rb              everything
#   ruby test/chart/run.rb -n /grace/   minitest's own options
#
# FIREBRICK  the program; otherwise target/release/firebrick
# GO         the command of Go; KUBE_CACHE  where the checker is kept (script/kubernetes/cache.rb)

ENV["MT_NO_PLUGINS"] ||= "1"
require "minitest"
require "minitest/test"

Dir[File.join(__dir__, "*_test.rb")].sort.each { |file| require file }
exit(Minitest.run(ARGV))
