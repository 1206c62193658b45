# frozen_string_literal: true

# Starts COUNT threads that sleep SECONDS seconds. Prints how many ended, or how many existed when no more could be started.
count, seconds = ARGV.map { |word| Integer(word) }
threads = []
begin
  count.times { threads << Thread.new { sleep seconds } }
rescue ThreadError => e
  puts "#{e.class} after #{threads.size} threads: #{e.message}"
  $stdout.flush
  exit! 1
end
threads.each(&:join)
puts "#{count} slept"
