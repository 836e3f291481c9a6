// The Go client, unchanged, against a server.
//
//	go run . CONNECTION FILE [again|secure]
//
// CONNECTION is the client's connection string. FILE keeps state for the cases of "again", which
// run after a restart of the server. With "secure", CONNECTION names a TLS server without a user,
// and FILE is a folder of certificates. Each case prints a line; the last line counts passed,
// failed and skipped cases.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
)

// Time limit of a case; a case that takes longer hangs.
const caseTimeout = time.Minute

// State that a case needs.
type world struct {
	ctx        context.Context
	client     *kurrentdb.Client
	connection string
	kept       string
}

// A case: its name and its function, which fails by panicking.
type testCase struct {
	name string
	run  func(w *world)
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "go run . CONNECTION FILE [again|secure]")
		os.Exit(2)
	}
	client := connect(os.Args[1])
	w := &world{client: client, connection: os.Args[1], kept: os.Args[2]}
	chosen := slices.Concat(cases, streamCases, secondCases, groupCases)
	switch {
	case len(os.Args) > 3 && os.Args[3] == "again":
		chosen = againCases
	case len(os.Args) > 3 && os.Args[3] == "secure":
		chosen = secureCases
	}
	passed, failed := 0, 0
	for _, one := range chosen {
		if why := outcome(w, one); why == nil {
			passed++
			fmt.Println("ok Go:", one.name)
		} else {
			failed++
			fmt.Println("FAILED Go:", one.name)
			fmt.Println("  ", why)
		}
	}
	fmt.Printf("%d passed, %d failed, 0 skipped\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func outcome(w *world, one testCase) (why any) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	defer func() { why = recover() }()
	w.ctx = ctx
	one.run(w)
	return nil
}

func connect(connection string) *kurrentdb.Client {
	settings := must(kurrentdb.ParseConnectionString(connection))
	settings.Logger = kurrentdb.NoopLogging()
	return must(kurrentdb.NewClient(settings))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func expect(seen, wanted any) {
	if !reflect.DeepEqual(seen, wanted) {
		panic(fmt.Sprintf("%v is not %v", seen, wanted))
	}
}

// The client's own error must have this code.
func expectCode(err error, code kurrentdb.ErrorCode) *kurrentdb.Error {
	var known *kurrentdb.Error
	if !errors.As(err, &known) || known.Code() != code {
		panic(fmt.Sprintf("%v (%T) instead of an error with the code %v", err, err, code))
	}
	return known
}

func newStream() string {
	return "go-" + uuid.NewString()
}

type counted struct {
	N uint64 `json:"n"`
}

func event(n uint64) kurrentdb.EventData {
	return kurrentdb.EventData{
		EventID:     uuid.New(),
		EventType:   "Counted",
		ContentType: kurrentdb.ContentTypeJson,
		Data:        must(json.Marshal(counted{n})),
	}
}

func numbers(from, to uint64) []uint64 {
	all := []uint64{}
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all
}

func backwards(all []uint64) []uint64 {
	turned := []uint64{}
	for at := len(all) - 1; at >= 0; at-- {
		turned = append(turned, all[at])
	}
	return turned
}

func counts(from, to uint64) []kurrentdb.EventData {
	events := []kurrentdb.EventData{}
	for _, n := range numbers(from, to) {
		events = append(events, event(n))
	}
	return events
}

func (w *world) try(stream string, state kurrentdb.StreamState, events ...kurrentdb.EventData) (*kurrentdb.WriteResult, error) {
	options := kurrentdb.AppendToStreamOptions{StreamState: state}
	return w.client.AppendToStream(w.ctx, stream, options, events...)
}

func (w *world) append(stream string, from, to uint64) *kurrentdb.WriteResult {
	return must(w.try(stream, kurrentdb.Any{}, counts(from, to)...))
}

func position(done *kurrentdb.WriteResult) kurrentdb.Position {
	return kurrentdb.Position{Commit: done.CommitPosition, Prepare: done.PreparePosition}
}

func number(read *kurrentdb.ResolvedEvent) uint64 {
	var data counted
	if err := json.Unmarshal(read.Event.Data, &data); err != nil {
		panic(err)
	}
	return data.N
}

func drain(stream *kurrentdb.ReadStream, err error) ([]*kurrentdb.ResolvedEvent, error) {
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	events := []*kurrentdb.ResolvedEvent{}
	for {
		read, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		events = append(events, read)
	}
}

func numbersOf(events []*kurrentdb.ResolvedEvent) []uint64 {
	all := []uint64{}
	for _, read := range events {
		all = append(all, number(read))
	}
	return all
}

func (w *world) events(stream string, options kurrentdb.ReadStreamOptions, count uint64) ([]*kurrentdb.ResolvedEvent, error) {
	return drain(w.client.ReadStream(w.ctx, stream, options, count))
}

func (w *world) read(stream string, options kurrentdb.ReadStreamOptions, count uint64) []uint64 {
	return numbersOf(must(w.events(stream, options, count)))
}

func (w *world) all(stream string) []uint64 {
	return w.read(stream, kurrentdb.ReadStreamOptions{From: kurrentdb.Start{}}, 10_000)
}

// Receives the given number of events of a subscription; returns also the number of caught-up
// messages and the checkpoints.
func take(subscription *kurrentdb.Subscription, count int) (seen []uint64, caughtUp int, places []kurrentdb.Position) {
	seen = []uint64{}
	for len(seen) < count {
		message := subscription.Recv()
		switch {
		case message.EventAppeared != nil:
			seen = append(seen, number(message.EventAppeared))
		case message.CaughtUp != nil:
			caughtUp++
		case message.CheckPointReached != nil:
			places = append(places, *message.CheckPointReached)
		case message.SubscriptionDropped != nil:
			panic(message.SubscriptionDropped.Error)
		}
	}
	return seen, caughtUp, places
}
