# frozen_string_literal: true

module Firebrick
  class Template
    # The child process of a Replay: calls the app with the request, and writes down each line of Ruby before it runs.
    class ReplayedCall
      # The length of each of the two lines that are kept: the last of the app, and the last of all.
      LINE = 511
      SHOWN = 12

      # places:: the folders of the app, and the AppLines
      def initialize(app, base, file, limit, places)
        @app = app
        @base = base
        @file = file
        @limit = limit
        @folders, @app_lines = places
        @mine = ""
      end

      # Does not return.
      def run
        prepare
        tell(*watched)
      rescue Exception => e # rubocop:disable Lint/RescueException
        tell(false, "The worker did not get as far as the request: #{Report.text(e)}\n")
      ensure
        exit!(0)
      end

      private

      def prepare
        out = File.open("#{@file}.output", "ab")
        [$stdout, $stderr].each { |stream| stream.reopen(out) && stream.sync = true }
        %w[INT QUIT TERM HUP].each { |name| trap(name, "DEFAULT") }
        # Only Linux lets a process choose this.
        File.write("/proc/self/oom_score_adj", "1000") if File.writable?("/proc/self/oom_score_adj")
        Exchange.name = "replay"
        @request = Pure::Request.new(File.binread(@file), nil)
        @lines = File.open("#{@file}.line", "wb")
        Firebrick.run_hooks(:after_fork, 0)
      end

      # Returns whether all went well, and the text about it.
      def watched
        started = now
        thread = Thread.new { traced { call } }
        thread.report_on_exception = false
        return [*thread.value, started] if thread.join(@limit)

        lines = shown(thread.backtrace.to_a).map { |line| "    #{line}\n" }
        [false, "It is stuck: after #{@limit} s it was here:\n#{lines.join}", started]
      rescue Exception => e # rubocop:disable Lint/RescueException
        [false, raised(e), started]
      end

      def shown(frames)
        @app_lines.of(frames).first(SHOWN)
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def tell(good, text, started = nil)
        text += format("It took %.1f ms; writing each line down made it slower.\n", (now - started) * 1e3) if started
        File.binwrite("#{@file}.new", Marshal.dump({ ok: good, text: text }))
        File.rename("#{@file}.new", "#{@file}.told")
      end

      # Other threads of the app do not disturb: only lines of this one are written down.
      def traced(&block)
        own = Thread.current
        trace = TracePoint.new(:line) { |point| write_down(point.path, point.lineno) if Thread.current.equal?(own) }
        trace.enable(&block)
      end

      # A write to a file outlives this process, however it ends.
      def write_down(path, number)
        return if path.start_with?(Worker::AppLines::OWN)

        line = "#{path}:#{number}"[0, LINE].ljust(LINE)
        @mine = line if mine?(path)
        @lines.pwrite("#{@mine}\n#{line}\n", 0)
      end

      # Gems may be in the app's folder, too.
      def mine?(path)
        folder = @folders.find { |one| path.start_with?(one) }
        folder ? !path.start_with?("#{folder}vendor/") : !path.start_with?("/", "<")
      end

      def call
        env = Pure::Env.new(@base, Rack.release >= "3").build(@request, 0)
        %w[rack.hijack rack.early_hints].each { |key| env.delete(key) }
        env["rack.hijack?"] = false
        status, headers, body = @app.call(env)
        bytes = read(body)
        finish(env, status, headers)
        describe(status, bytes, env)
      end

      def read(body)
        bytes = 0
        if body.respond_to?(:each)
          body.each { |part| bytes += part.to_s.bytesize }
        elsif body.respond_to?(:call)
          return nil
        end
        bytes
      ensure
        body.close if body.respond_to?(:close)
      end

      def finish(env, status, headers)
        env["rack.response_finished"].to_a.reverse_each { |callback| callback.call(env, status, headers, nil) }
        env["rack.after_reply"].to_a.each(&:call)
      end

      def describe(status, bytes, env)
        text = "It was answered: status #{status}, #{bytes ? "#{bytes} bytes" : 'a stream, which was not run'}.\n"
        error = env["action_dispatch.exception"]
        [status.to_i < 500, error ? text + raised(error) : text]
      end

      def raised(error)
        "The app raised #{Report.text(error) { |frames| shown(frames) }}\n"
      end
    end
  end
end
