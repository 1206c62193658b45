# frozen_string_literal: true

require "socket"

# A socket that receives notifications like systemd; reads them as hashes of lines, with the sender's process id (:pid). A thread
# reads, because the kernel buffers only a few.
class NotifySocket
  SO_PASSCRED = 16

  attr_reader :address

  def initialize(address)
    @address = address
    @socket = Socket.new(:UNIX, :DGRAM)
    @socket.setsockopt(Socket::SOL_SOCKET, SO_PASSCRED, 1)
    @socket.bind(Addrinfo.unix(address))
    @received = []
    @reader = Thread.new { loop { receive } }
  end

  # The notifications so far.
  def received = @received.dup

  def close
    @reader.kill.join
    @socket.close
    File.delete(@address)
  end

  private

  def receive
    text, _, _, control = @socket.recvmsg(4096)
    @received << text.lines(chomp: true).to_h { |line| line.split("=", 2) }.merge(pid: control.data.unpack1("i"))
  end
end
