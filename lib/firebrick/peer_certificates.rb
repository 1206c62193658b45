# frozen_string_literal: true

module Firebrick
  # `puma.peercert`: the certificates of clients as Ruby's OpenSSL reads them. The front has verified them.
  #
  # The requests of a client get the same object, as in Puma. OpenSSL is loaded when the first certificate comes.
  class PeerCertificates
    KEPT = 64

    def initialize
      @lock = Mutex.new
      @known = {}
    end

    # The OpenSSL::X509::Certificate; nil if Ruby has no OpenSSL, or one that does not understand the certificate.
    def of(pem)
      @lock.synchronize do
        certificate = @known.fetch(pem) { read(pem) }
        # What was used last comes last.
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
