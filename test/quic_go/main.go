// A client of quic-go for the tests: sends requests at once on one connection, and prints what came back as JSON; or holds many connections
// that do not go on (crowd.go), or opens a WebSocket (websocket.go).
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

type answer struct {
	Status   int                 `json:"status"`
	Protocol string              `json:"protocol"`
	Length   int64               `json:"length"`
	Sha256   string              `json:"sha256"`
	Text     string              `json:"text"`
	Fields   map[string][]string `json:"fields"`
	Error    string              `json:"error,omitempty"`
}

// A body whose length is not declared, if that is wanted.
type zeros struct{ left int }

func (z *zeros) Read(to []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(len(to), z.left)
	clear(to[:n])
	z.left -= n
	return n, nil
}

// The first bytes of a body.
type beginning []byte

func (b *beginning) Write(part []byte) (int, error) {
	*b = append(*b, part[:min(len(part), 100-len(*b))]...)
	return len(part), nil
}

// Keeps the connection until the program is killed.
func wait() {
	fmt.Println("holding")
	select {}
}

func main() {
	method := flag.String("method", "GET", "the method")
	body := flag.Int("body", 0, "length of the body")
	declared := flag.Bool("declared", true, "send Content-Length")
	trailer := flag.Bool("trailer", false, "send a trailer field behind the body")
	count := flag.Int("count", 1, "requests at once")
	rush := flag.Bool("rush", false, "the others do not wait for the first one")
	then := flag.String("then", "", "the path of a last request, by GET, on the same connection")
	hold := flag.Bool("hold", false, "keep the connection until the program is killed; print a line when the answers are there")
	first := flag.Int64("read", -1, "bytes of a body that are read; then hold")
	rate := flag.Int64("rate", 0, "bytes of a body that are read in a second; 0 for as fast as they come")
	pause := flag.Duration("pause", 0, "do not hold then, but go on after this time")
	window := flag.Uint64("window", 0, "bytes of a response that the server may send before they are read; 0 for the library's choice")
	idle := flag.Duration("idle", 0, "the time without a packet after which the connection is given up; 0 for the library's choice")
	limit := flag.Duration("limit", 50*time.Second, "the time that all requests have")
	crowd := flag.Int("crowd", 0, "hold so many connections that do not go on, until the program is killed")
	stop := flag.String("stop", "head", "where they stop: handshake, request, head, body, response, or reset")
	websocket := flag.String("websocket", "", "open a stream of this protocol with an Extended CONNECT, between standard input and output")
	fields := flag.String("fields", "{}", "fields of this handshake, as an object of JSON; they replace others")
	flag.Parse()
	if *websocket != "" {
		openWebsocket(flag.Arg(0), *websocket, *fields)
		return
	}
	if *crowd > 0 {
		holdCrowd(*crowd, *stop, flag.Arg(0))
		return
	}
	settings := &quic.Config{InitialStreamReceiveWindow: *window, MaxStreamReceiveWindow: *window, MaxIdleTimeout: *idle}
	transport := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, QUICConfig: settings}
	context, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	answers := make([]answer, *count)
	one := func(at int, method string, url string) {
		found := &answers[at]
		request, err := http.NewRequestWithContext(context, method, url, nil)
		if err != nil {
			found.Error = err.Error()
			return
		}
		if *body > 0 {
			request.Body = io.NopCloser(&zeros{*body})
			request.ContentLength = -1
			if *declared {
				request.ContentLength = int64(*body)
			}
			if *trailer {
				request.Trailer = http.Header{"X-Checked": {"yes"}}
			}
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			found.Error = err.Error()
			return
		}
		defer response.Body.Close()
		hash := sha256.New()
		var text beginning
		to := io.MultiWriter(hash, &text)
		var length int64
		if *first >= 0 {
			length, _ = io.CopyN(to, response.Body, *first)
			if *pause == 0 {
				wait()
			}
			fmt.Println("paused")
			time.Sleep(*pause)
		}
		for *rate > 0 {
			read, err := io.CopyN(to, response.Body, (*rate+9)/10)
			length += read
			if err != nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		rest, err := io.Copy(to, response.Body)
		length += rest
		if err != nil {
			found.Error = err.Error()
		}
		*found = answer{response.StatusCode, response.Proto, length, hex.EncodeToString(hash.Sum(nil)), string(text), response.Header, found.Error}
	}
	// The first one opens the connection, which the others share.
	begun := 0
	if !*rush {
		one(0, *method, flag.Arg(0))
		begun = 1
	}
	var all sync.WaitGroup
	for at := begun; at < *count; at++ {
		all.Add(1)
		go func() {
			defer all.Done()
			one(at, *method, flag.Arg(0))
		}()
	}
	all.Wait()
	if *then != "" {
		next, err := url.Parse(flag.Arg(0))
		if err != nil {
			panic(err)
		}
		next.Path = *then
		answers = append(answers, answer{})
		one(*count, "GET", next.String())
	}
	if *hold {
		wait()
	}
	if err := transport.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(answers)
}
