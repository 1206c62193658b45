# frozen_string_literal: true

require "openssl"

module Kubernetes
  # An authority for one run, and its certificates: PEM files in a folder.
  class Certificates
    YEAR = 365 * 86_400

    def initialize(folder)
      @folder = folder
      @serial = 0
      @authority_key, @authority = make("authority", usage: nil)
      write("ca.crt", @authority.to_pem)
      write("accounts.key", OpenSSL::PKey::RSA.new(2048).to_pem)
    end

    def path(name) = File.join(@folder, name)

    # Writes NAME.crt and NAME.key, for a server on loopback, for a client, or for both.
    def issue(name, usage:)
      key, certificate = make(name, usage: usage)
      write("#{name}.key", key.private_to_pem)
      write("#{name}.crt", certificate.to_pem)
    end

    private

    def write(name, text) = File.write(path(name), text, perm: 0o600)

    def make(name, usage:)
      key = OpenSSL::PKey::EC.generate("prime256v1")
      certificate = OpenSSL::X509::Certificate.new
      certificate.version = 2
      certificate.serial = (@serial += 1)
      certificate.subject = OpenSSL::X509::Name.new([["CN", name]])
      certificate.issuer = (@authority || certificate).subject
      certificate.public_key = key
      certificate.not_before = Time.now - 3600
      certificate.not_after = Time.now + YEAR
      extend_with(certificate, usage)
      certificate.sign(@authority_key || key, OpenSSL::Digest.new("SHA256"))
      [key, certificate]
    end

    def extend_with(certificate, usage)
      factory = OpenSSL::X509::ExtensionFactory.new(@authority || certificate, certificate)
      extensions = usage ? { "basicConstraints" => "CA:FALSE", "extendedKeyUsage" => usage } : { "basicConstraints" => "critical,CA:TRUE", "keyUsage" => "critical,keyCertSign" }
      extensions["subjectAltName"] = "IP:127.0.0.1,DNS:localhost" if usage&.include?("serverAuth")
      extensions["subjectKeyIdentifier"] = "hash"
      extensions.each { |key, value| certificate.add_extension(factory.create_ext_from_string("#{key}=#{value}")) }
    end
  end
end
