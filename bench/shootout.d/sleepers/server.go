// Answers each request after SECONDS seconds: PORT SECONDS.
package main

import (
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	seconds, _ := strconv.Atoi(os.Args[2])
	http.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/now" {
			time.Sleep(time.Duration(seconds) * time.Second)
		}
		response.Header().Set("Content-Type", "text/plain")
		response.Write([]byte("slept"))
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
