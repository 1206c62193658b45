# check: workers = auto
# check: port = 3000, host = ::
workers :auto
threads 3, 3
port ENV.fetch("PORT", 3000), "::"
raise_exception_on_sigterm false
