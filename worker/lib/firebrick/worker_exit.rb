# frozen_string_literal: true

module Firebrick
  # The argument of `after_worker_exit` hooks: the worker, and how it exited.
  class WorkerExit
    # How a process exited, with the methods of Process::Status that such hooks use.
    Status = Struct.new(:pid, :exitstatus, :termsig) do
      def exited?
        !exitstatus.nil?
      end

      def signaled?
        !termsig.nil?
      end

      def success?
        exitstatus&.zero?
      end

      def to_s
        signaled? ? "pid #{pid} SIG#{Signal.signame(termsig)} (signal #{termsig})" : "pid #{pid} exit #{exitstatus}"
      end
    end

    attr_reader :index, :pid, :process_status

    # how:: "exit" or "signal", with the code or the number
    def initialize(index, pid, how, code)
      @index = index
      @pid = pid
      @process_status = how == "signal" ? Status.new(pid, nil, code) : Status.new(pid, code, nil)
    end
  end
end
