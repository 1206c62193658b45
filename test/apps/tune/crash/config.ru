# frozen_string_literal: true

# Runs in one process only: a second one finds this file locked and exits.
class OneProcess
  def call(_env)
    @lock ||= take
    sleep 0.005
    [200, { "content-type" => "text/plain" }, ["alone\n"]]
  end

  private

  def take
    file = File.open(__FILE__)
    return file if file.flock(File::LOCK_EX | File::LOCK_NB)

    warn "there is a licence for one process only"
    exit!(3)
  end
end

run OneProcess.new
