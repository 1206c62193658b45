# frozen_string_literal: true

module Firebrick
  # `puma.peercert`: clients' certificates as OpenSSL objects. The front has verified them.
  #
  # All requests of a client get the same object, as in Puma. OpenSSL is loaded with the first certificate.
  class PeerCertificates
    KEPT = 64

    def initialize
      @lock = Mutex.new
      @known = {}
    end

    # Returns the OpenSSL::X509::Certificate; nil if Ruby has no OpenSSL, or one that cannot read the certificate.
    def of(pem)
      @lock.synchronize do
        certificate = @known.fetch(pem) { read(pem) }
        # Moves it to the end: the least recently used one is dropped first.
        @known.delete(pem)
        @known[pem] = certificate
        @known.shift if @known.size > KEPT
        certificate
      end
    end

    private

    def read(pem)
      require "openssl"
      OpenSSL::X509::Certificate.new(pem)
    rescue LoadError, OpenSSL::X509::CertificateError => e
      Report.log("firebrick: #{Exchange.name}: puma.peercert is missing: #{Report.text(e)}")
      nil
    end
  end
end
