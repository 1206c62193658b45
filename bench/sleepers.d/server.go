// The paths of examples/sleepers over HTTP/1.1 and HTTP/2 without TLS: PORT.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	http.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		words := append(strings.Split(request.URL.Path, "/"), "", "")
		seconds, _ := strconv.ParseFloat(words[2], 64)
		wait := time.Duration(seconds * float64(time.Second))
		switch words[1] {
		case "sleep":
			time.Sleep(wait)
		case "read":
			connection, err := net.Dial("unix", os.Getenv("LATE"))
			if err != nil {
				http.Error(response, err.Error(), 500)
				return
			}
			fmt.Fprintln(connection, words[2])
			io.ReadAll(connection)
			connection.Close()
		case "hog":
			for over := time.Now().Add(wait); time.Now().Before(over); {
			}
		}
		response.Header().Set("Content-Type", "text/plain")
		response.Write([]byte("slept\n"))
	})
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Addr: "127.0.0.1:" + os.Args[1], Protocols: &protocols}
	log.Fatal(server.ListenAndServe())
}
