# Logger, and other writers to the error log.
class Logger
  module Severity
    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3
    FATAL = 4
    UNKNOWN = 5
  end
  include Severity

  NAMES = %w[DEBUG INFO WARN ERROR FATAL ANY].freeze

  attr_accessor :progname, :formatter, :datetime_format
  attr_reader :level

  # `device` is an object with `write`; without one it is the server's error log, which adds the time.
  def initialize(device = nil, *_rotation, level: DEBUG, progname: nil, formatter: nil)
    @device = device.respond_to?(:write) && !device.equal?($stderr) && !device.equal?($stdout) ? device : nil
    @progname = progname
    @formatter = formatter
    self.level = level
  end

  def level=(level)
    number = level.is_a?(Integer) ? level : NAMES.index(level.to_s.upcase)
    raise ArgumentError, "invalid log level: #{level}" unless number
    @level = number
  end

  def add(severity, message = nil, progname = nil)
    severity ||= UNKNOWN
    return true if severity < @level
    if message.nil?
      message = block_given? ? yield : progname
      progname = @progname unless block_given? && progname
    end
    write(line(NAMES[severity] || 'ANY', progname || @progname, message))
    true
  end
  alias log add

  def <<(text)
    write(text)
    self
  end

  [['debug', DEBUG], ['info', INFO], ['warn', WARN], ['error', ERROR], ['fatal', FATAL], ['unknown', UNKNOWN]].each do |name, number|
    define_method(name.to_sym) do |progname = nil, &block|
      add(number, nil, progname, &block)
    end
    define_method("#{name}?".to_sym) { @level <= number }
  end

  def close; end

  private

  def line(severity, progname, message)
    time = Time.now
    return @formatter.call(severity, time, progname, message) if @formatter
    text = format_message(message)
    return "#{severity} -- #{progname ? "#{progname}: " : ''}#{text}" unless @device
    "#{severity[0]}, [#{time.strftime(@datetime_format || '%Y-%m-%dT%H:%M:%S.%6N')}] #{' ' * (5 - severity.size)}#{severity} -- #{progname}: #{text}\n"
  end

  def format_message(message)
    case message
    when String then message
    when Exception then "#{message.message} (#{message.class})"
    else message.inspect
    end
  end

  def write(text)
    @device ? @device.write(text) : Rt.call(Rt::LOG, text.to_s)
  end
end
