// Answers each request after SECONDS seconds: PORT SECONDS.
const [port, seconds] = process.argv.slice(2).map(Number);
const server = require("http").createServer((request, response) => {
  setTimeout(() => {
    response.setHeader("Content-Type", "text/plain");
    response.end("slept");
  }, request.url === "/now" ? 0 : seconds * 1000);
});
server.requestTimeout = 0;
server.listen({ port, host: "127.0.0.1", backlog: 16384 });
