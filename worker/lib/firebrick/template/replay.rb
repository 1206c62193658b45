# frozen_string_literal: true

require "firebrick/pure/request"
require "firebrick/template/replayed_call"

module Firebrick
  class Template
    # Repeats requests that workers have died of, for `firebrick deaths --replay`: each in a child process that gets
    # nothing else, and that the kernel takes first if memory runs out.
    #
    # Contract: the child may end in any way; what it has told until then is in files, as no pipe can be left open by
    # processes that the app starts. The text for the user comes after a first line with `ok` or `bad`.
    class Replay
      # Seconds that a child has beyond its limit to tell where it is stuck.
      GRACE = 2
      OUTPUT_LINES = 15

      # wish:: the time limit in milliseconds and the folder of the requests, in lines
      def initialize(app, base, wish, folder)
        limit, @dir = wish.split("\n", 2)
        @limit = Integer(limit) / 1e3
        @app = app
        @base = base
        @lines = Worker::AppLines.new(Dir.pwd, folder)
        @folders = [Dir.pwd, folder].uniq.map { |one| "#{one.chomp('/')}/" }
      end

      def run
        Dir.glob(File.join(@dir, "request-*")).each do |file|
          good, text = outcome(file, serve(file))
          File.binwrite(file.sub(/request-(\d+)\z/, 'outcome-\1'), "#{good ? 'ok' : 'bad'}\n#{text}")
        end
      end

      private

      # Returns the status of the child; nil if it had to be killed.
      def serve(file)
        call = ReplayedCall.new(@app, @base, file, @limit, [@folders, @lines])
        pid = fork { call.run }
        deadline = now + @limit + GRACE
        until now > deadline
          _, status = Process.wait2(pid, Process::WNOHANG)
          return status if status

          sleep 0.02
        end
        kill(pid)
      end

      def kill(pid)
        Process.kill(:KILL, pid)
        Process.wait(pid)
        nil
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def outcome(file, status)
        told = Marshal.load(File.binread("#{file}.told")) if File.exist?("#{file}.told") # rubocop:disable Security/MarshalLoad
        return [told[:ok], told[:text] + output(file)] if told

        [false, "#{how(status)}\n#{last_line(file)}#{output(file)}"]
      end

      def how(status)
        return "It is stuck: it did not end within #{@limit} s, and no other thread of Ruby ran." unless status
        return "It killed the worker: #{signal(status.termsig)}." if status.signaled?

        "It ended the worker: exit status #{status.exitstatus}."
      end

      def signal(number)
        name = Signal.signame(number)
        "signal #{number}#{" (SIG#{name})" if name}"
      end

      # Returns the last lines of Ruby that ran.
      def last_line(file)
        mine, last = File.read("#{file}.line").split("\n").map { |line| @lines.of([line.strip]).first }
        return "No line of Ruby ran.\n" unless last

        text = "The last line of the app that ran: #{mine}\n" if mine && !mine.empty?
        mine == last ? text : "#{text}The last line of Ruby that ran: #{last}\n"
      rescue Errno::ENOENT
        "No line of Ruby ran.\n"
      end

      def output(file)
        lines = File.read("#{file}.output").scrub("?").lines
        return "" if lines.empty?

        more = "    (#{lines.size - OUTPUT_LINES} more lines)\n" if lines.size > OUTPUT_LINES
        "Its output:\n#{lines.first(OUTPUT_LINES).map { |line| "    #{line.chomp}\n" }.join}#{more}"
      rescue Errno::ENOENT
        ""
      end
    end
  end
end
