# HTTP Basic authentication for the next handlers: `Htpasswd.new('/etc/site/people', 'Members only')`. The file has lines of `htpasswd` or
# `openssl passwd`: bcrypt, SHA-crypt, apr1, {SHA}, {SSHA}.
class Htpasswd
  # A condition, for `acl`.
  attr_reader :path, :realm, :condition

  # A relative path starts at the handler's folder. Raises if the file cannot be read or a line is invalid.
  def initialize(path, realm = 'Restricted', &condition)
    @condition = condition
    @path = Rt.beside(path.to_s)
    @realm = realm
    quoted = realm.to_s.tr("\r\n", '  ').each_char.map { |letter| letter == '"' || letter == '\\' ? "\\#{letter}" : letter }
    @challenge = "Basic realm=\"#{quoted.join}\", charset=\"UTF-8\""
    Rt.call(Rt::PASSWORDS, @path)
  end

  def call(env)
    return [404, { 'content-type' => 'text/plain' }, ['not found']] if Rt.call(Rt::PLAIN_PATH, env['PATH_INFO']).include?('/.ht')
    authorization = env['HTTP_AUTHORIZATION']
    user = authorization && Rt.wait!(Rt::WAIT_PASSWORD, @path, authorization, env['REMOTE_ADDR'].to_s, env['REMOTE_PORT'].to_s)
    # Refuse, so that one client cannot keep the processors busy with wrong passwords.
    return [503, { 'content-type' => 'text/plain', 'retry-after' => '1' }, ['Too many passwords to be checked']] if user == false
    return [399, { 'x-fallthru-set-remote-user' => user }, []] if user
    [401, { 'content-type' => 'text/plain', 'www-authenticate' => @challenge }, ['Authorization Required']]
  end
end
