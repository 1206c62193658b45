# A set of networks, IPv4 and IPv6.
class TrieAddr
  def initialize(*networks)
    @known = {}
    @lengths = { true => [], false => [] }
    add(networks)
  end

  # A network (`10.0.0.0/8`, `2001:db8::/32`), an address, or an Array of them.
  def add(networks)
    return networks.each { |network| add(network) } && self if networks.is_a?(Array)
    key, length, four = Rt.call(Rt::CIDR, networks.to_s)
    unless key
      raise ArgumentError, "invalid address: #{networks.inspect}; expected one such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32"
    end
    @known[key] = true
    lengths = @lengths[four]
    lengths << length unless lengths.include?(length)
    self
  end
  alias << add

  # False if it is not an address.
  def match?(address)
    keys = Rt.call(Rt::PREFIXES, address.to_s, @lengths[true], @lengths[false])
    return false unless keys
    keys.any? { |key| @known[key] }
  end
  alias include? match?
  alias === match?
end
