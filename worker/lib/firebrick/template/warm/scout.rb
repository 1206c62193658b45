# frozen_string_literal: true

require "timeout"
require "firebrick/template/warm/leftovers"

module Firebrick
  class Template
    module Warm
      # A child process that sends each request to the app first. The template repeats only what ended well there.
      #
      # Why: a request may crash, hang, write, or leave threads and connections behind, which workers would inherit. The
      # scout may do all of this: it gets no request of a client, and ends.
      class Scout
        # Seconds for one request.
        EACH = 2
        # Seconds beyond the limit until the process is killed.
        GRACE = 1

        # The requests that may be repeated; those that may not, with the reasons; why none may be, or nil.
        Outcome = Struct.new(:good, :left_out, :refusal)

        def initialize(app, base, requests, limit)
          @app = app
          @base = base
          @requests = requests
          @limit = limit
        end

        # @return [Outcome]
        def run
          reader, writer = IO.pipe
          pid = fork { rehearse(reader, writer) }
          writer.close
          lines = read(reader, now + @limit + GRACE)
          status = finish(pid, lines)
          outcome(lines, status)
        ensure
          reader&.close
        end

        private

        def now
          Process.clock_gettime(Process::CLOCK_MONOTONIC)
        end

        # In the scout. Does not return.
        def rehearse(reader, writer)
          reader.close
          Warm.yield_processor
          writer.sync = true
          left = Leftovers.of { try_all(writer, now + @limit) }
          writer.puts("left #{one_line(left)}".strip)
        rescue Exception => e # rubocop:disable Lint/RescueException
          writer.puts("left #{one_line(e.message)}")
        ensure
          exit!(0)
        end

        def try_all(writer, deadline)
          @requests.each_with_index do |request, index|
            return nil if now >= deadline

            writer.puts("begun #{index}")
            writer.puts([verdict(request), index].join(" "))
          end
        end

        def verdict(request)
          why = ReadOnly.run_everywhere do |guard|
            fault = fault(request)
            guard.refused? ? "it writes" : fault
          end
          why ? "bad #{why}," : "good"
        end

        # Returns why a request is not repeated; nil if it is.
        def fault(request)
          status = Timeout.timeout(EACH) { request.call(@app, @base) }
          return "it is a stream" if status.nil?

          "status #{status}" if status >= 500
        rescue Timeout::Error
          "more than #{EACH} s"
        rescue SignalException
          raise
        rescue Exception => e # rubocop:disable Lint/RescueException
          one_line(e.class.name)
        end

        def one_line(text)
          text.to_s.tr("\n", " ")[0, 200]
        end

        # In the template: reads until the end or the deadline.
        def read(reader, deadline)
          text = +""
          while (left = deadline - now).positive? && reader.wait_readable(left)
            part = reader.read_nonblock(65_536, exception: false)
            break if part.nil?

            text << part if part.is_a?(String)
          end
          text.lines(chomp: true)
        end

        # Returns the status of the process, which is killed if it has not said its last word.
        def finish(pid, lines)
          Process.kill(:KILL, pid) unless lines.last.to_s.start_with?("left")
          Process.wait2(pid).last
        rescue SystemCallError
          nil
        end

        def outcome(lines, status)
          good = lines.filter_map { |line| at(line[/\Agood (\d+)\z/, 1]) }
          bad = lines.grep(/\Abad /).map { |line| [at(line[/\d+\z/]), line[/\Abad (.*), \d+\z/, 1]] }
          last = lines.last.to_s
          return Outcome.new(good, bad, last[/\Aleft (.+)\z/, 1]) if last.start_with?("left")

          Outcome.new([], bad, how(lines, status))
        end

        # Returns the request of this number; nil without one.
        def at(number)
          @requests[Integer(number)] if number
        end

        def how(lines, status)
          begun = lines.reverse.find { |line| line.start_with?("begun ") }
          request = begun ? at(begun.split.last) : "the first request"
          return "#{request} did not end" unless status&.signaled? && status.termsig != Signal.list["KILL"]

          "the process that tried #{request} was killed by SIG#{Signal.signame(status.termsig)}"
        end
      end
    end
  end
end
