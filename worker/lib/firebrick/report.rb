# frozen_string_literal: true

module Firebrick
  # Formats exceptions, for the error log and the development page. Does not raise, even if methods of the exception do.
  module Report
    class << self
      # Returns the text. A block may select the lines of each backtrace.
      def text(error, env = nil, &chosen)
        lines = ["#{error.class}: #{message(error)}#{request_line(env)}"]
        frames = backtrace(error)
        frames = yield(frames) if chosen
        lines.concat(frames.map { |line| "    #{line}" })
        lines << "  caused by #{text(error.cause, &chosen)}" if error.cause
        clean(lines.join("\n"))
      rescue StandardError, SystemStackError => e
        "#{error.class} (its report failed: #{e.class})"
      end

      # The file of the error log, nil for standard error; whether its entries are JSON; the env key with the id of a
      # request.
      attr_accessor :file, :json, :request_id

      # Writes to the error log in one write, so that entries of several processes do not mix. `env`: that of the
      # request concerned.
      def log(text, env = nil, level: "error")
        write(entry(clean(text).chomp, env, level))
      rescue IOError, SystemCallError
        nil
      end

      private

      # The file is opened each time: this is rare, and it may have been moved by log rotation.
      def write(entry)
        return $stderr.write(entry) unless file

        File.open(file, File::WRONLY | File::APPEND | File::CREAT) { |log| log.syswrite(entry) }
      rescue SystemCallError
        $stderr.write(entry)
      end

      def entry(text, env, level)
        time = Time.now.strftime("%Y-%m-%dT%H:%M:%S.%L%:z")
        id = env && request_id && env[request_id]
        return json_entry(time, level, text.delete_prefix("firebrick: "), id) if json

        first, rest = text.delete_prefix("firebrick: ").split("\n", 2)
        id = " (request #{clean(id.to_s)})" if id
        "[#{time}] firebrick[#{Process.pid}]: #{level}: #{first}#{id}#{"\n#{rest}" if rest}\n"
      end

      def json_entry(time, level, text, id)
        texts = { time: time, level: level, request_id: id, message: text }.compact
        pairs = texts.map { |key, value| "#{quoted(key.to_s)}:#{quoted(clean(value.to_s))}" }
        "{#{pairs.insert(2, "\"pid\":#{Process.pid}").join(',')}}\n"
      end

      # Encodes a JSON string. The gem json is not used, because the app may want another version of it.
      def quoted(text)
        %("#{text.gsub(/["\\\u0000-\u001f\u007f-\u009f\u2028\u2029]/) { |one| format('\\u%04x', one.ord) }}")
      end

      def message(error)
        clean(error.message.to_s)
      rescue StandardError => e
        "(its message failed: #{e.class})"
      end

      def backtrace(error)
        Array(error.backtrace).map(&:to_s)
      end

      def request_line(env)
        return unless env

        mark = ", firebrick shadow #{env['firebrick.shadow']}" if env.key?("firebrick.shadow")
        " (#{env['REQUEST_METHOD']} #{env['REQUEST_URI'] || env['PATH_INFO']}#{mark})"
      end

      def clean(text)
        text.dup.force_encoding(Encoding::UTF_8).scrub("?")
      end
    end
  end
end
