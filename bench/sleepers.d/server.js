// The paths of examples/sleepers over HTTP/1.1 and HTTP/2 without TLS, told apart by the first bytes of a connection: PORT.
const http = require("http");
const http2 = require("http2");
const net = require("net");

function answer(request, response) {
  const [, verb, text] = request.url.split("/");
  const seconds = Number(text);
  const fail = (error) => {
    response.statusCode = 500;
    response.end(`${error.code}\n`);
  };
  const end = () => {
    response.setHeader("Content-Type", "text/plain");
    response.end("slept\n");
  };
  if (verb === "sleep") {
    setTimeout(end, seconds * 1000);
  } else if (verb === "read") {
    const socket = net.connect(process.env.LATE);
    socket.write(`${text}\n`);
    socket.on("data", () => {}).on("end", end).on("error", fail);
  } else {
    const over = Date.now() + (verb === "hog" ? seconds * 1000 : 0);
    while (Date.now() < over);
    end();
  }
}

const one = http.createServer(answer);
one.requestTimeout = 0;
const two = http2.createServer({ peerMaxConcurrentStreams: 1000, settings: { maxConcurrentStreams: 1000 } }, answer);
net
  .createServer((socket) => {
    socket.once("readable", () => {
      const first = socket.read();
      if (!first) return;
      socket.unshift(first);
      (first.toString("latin1").startsWith("PRI") ? two : one).emit("connection", socket);
    });
  })
  .listen({ port: Number(process.argv[2]), host: "127.0.0.1", backlog: 16384 });
