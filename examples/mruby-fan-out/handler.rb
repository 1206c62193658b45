# frozen_string_literal: true

# A page's data from three services. The requests run concurrently: together they take as long as the slowest.
class Product
  PARTS = %w[products prices reviews].freeze

  def initialize(services)
    @services = services
  end

  def call(env)
    number = env["PATH_INFO"].delete_prefix("/products/")
    return json(404, error: "expected /products/NUMBER") unless number.match?(/\A\d{1,9}\z/)

    requests = PARTS.map { |part| http_request("#{@services}/#{part}/#{number}") }
    product, price, reviews = requests.map { |request| read(request) }
    return json(502, error: "the product service is unreachable") unless product

    json(200, product: product, price: price, reviews: reviews || [])
  end

  private

  # A service's JSON; nil if the request failed.
  def read(request)
    status, _, body = request.join
    JSON.parse(body.join) if status == 200
  rescue JSON::ParserError
    nil
  end

  def json(status, data)
    [status, { "content-type" => "application/json" }, [JSON.generate(data), "\n"]]
  end
end

Product.new(ENV.fetch("SERVICES", "http://127.0.0.1:4000"))
