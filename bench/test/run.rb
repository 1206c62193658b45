# frozen_string_literal: true

# Runs the benchmarks' own tests: each file in a separate process, three at a time, because they mostly wait for loads and
# servers. The output of a file is printed when it has ended.
#
#   ruby bench/test/run.rb            everything
#   ruby bench/test/run.rb deploys    the files whose name contains one of these words
#
# FIREBRICK  the program (the newest of target/)
# AT_A_TIME  processes (3)

require "open3"
require "rbconfig"

files = Dir[File.join(__dir__, "*_test.rb")].sort_by { |file| -File.size(file) }
files.select! { |file| ARGV.any? { |word| File.basename(file).include?(word) } } unless ARGV.empty?
abort "no test file matches #{ARGV.join(' ')}" if files.empty?

jobs = files.each_with_object(Queue.new) { |file, queue| queue << file }.close
shown = Mutex.new
threads = Array.new([Integer(ENV.fetch("AT_A_TIME", 3)), files.size].min) do
  Thread.new do
    failed = []
    while (file = jobs.pop)
      text, status = Open3.capture2e(RbConfig.ruby, file)
      failed << File.basename(file) unless status.success?
      shown.synchronize { puts "bench/test/#{File.basename(file)}:", text }
    end
    failed
  end
end
failed = threads.flat_map(&:value)
# A file that fails beside others and passes alone is reported; a real fault fails twice.
failed.reject! do |name|
  puts "", "Again, alone: #{name}"
  passed = system(RbConfig.ruby, File.join(__dir__, name))
  puts "UNSTABLE: #{name} failed beside the others, see above, and passes alone" if passed
  passed
end
abort "failed: #{failed.join(', ')}" if failed.any?
