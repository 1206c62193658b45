# frozen_string_literal: true

# Certificates for test servers, generated with their own keys and valid for one hour.

require "openssl"

module Certificates
  # A certificate and its key; signed by +issuer+ (a pair as returned by this method), or self-signed as `openssl req -x509`
  # makes it.
  def certificate(issuer: nil, subject_alt_name: "IP:127.0.0.1", from: Time.now - 3600, to: Time.now + 3600, name: nil,
                  serial: rand(1 << 60), key: OpenSSL::PKey::EC.generate("prime256v1"))
    cert = OpenSSL::X509::Certificate.new
    cert.version = 2
    cert.serial = serial
    cert.subject = OpenSSL::X509::Name.new([["CN", name || "firebrick test #{cert.serial}"]])
    signer, signing_key = issuer || [cert, key]
    cert.issuer = signer.subject
    cert.public_key = key.is_a?(OpenSSL::PKey::EC) ? key : key.public_key
    cert.not_before = from
    cert.not_after = to
    factory = OpenSSL::X509::ExtensionFactory.new(signer, cert)
    [["basicConstraints", "CA:#{issuer ? 'FALSE' : 'TRUE'}", true], ["subjectAltName", subject_alt_name]].each { |extension| cert.add_extension(factory.create_extension(*extension)) }
    cert.sign(signing_key, OpenSSL::Digest.new("SHA256"))
    [cert, key]
  end

  # Makes an expired certificate.
  def expired_certificate(**options)
    certificate(from: Time.now - 7200, to: Time.now - 3600, **options)
  end
end
