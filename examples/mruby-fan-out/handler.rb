# frozen_string_literal: true

# A page's data from three services. The requests are under way together: it takes as long as the slowest.
class Product
  PARTS = %w[products prices reviews].freeze

  def initialize(services)
    @services = services
  end

  def call(env)
    number = env["PATH_INFO"].delete_prefix("/products/")
    return answer(404, error: "ask for /products/NUMBER") unless number.match?(/\A\d{1,9}\z/)

    asked = PARTS.map { |part| http_request("#{@services}/#{part}/#{number}") }
    product, price, reviews = asked.map { |request| read(request) }
    return answer(502, error: "the products cannot be reached") unless product

    answer(200, product: product, price: price, reviews: reviews || [])
  end

  private

  # What a service said; nil when it failed.
  def read(request)
    status, _, body = request.join
    JSON.parse(body.join) if status == 200
  rescue JSON::ParserError
    nil
  end

  def answer(status, data)
    [status, { "content-type" => "application/json" }, [JSON.generate(data), "\n"]]
  end
end

Product.new(ENV.fetch("SERVICES", "http://127.0.0.1:4000"))
