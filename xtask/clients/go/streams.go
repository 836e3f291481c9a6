package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
)

var cases = []testCase{
	{"append an event and read it back", appendAndRead},
	{"append bytes", appendBytes},
	{"append four megabytes", appendLarge},
	{"reject an append over the limit", appendTooLarge},
	{"append in each expected state", appendInEachState},
	{"append the same events again", appendAgain},
	{"see a wrong expected version", wrongVersion},
	{"read a stream forwards and backwards", readBothWays},
	{"read all forwards and backwards", readAllBothWays},
	{"report a missing stream", findNoStream},
	{"observe a deadline", keepDeadline},
	{"set and get the metadata of a stream", metadata},
	{"delete a stream and create it again", deleteAndRecreate},
	{"tombstone a stream", tombstone},
	{"get the server's version", serverVersion},
	{"find the leader by gossip", gossip},
}

func appendAndRead(w *world) {
	stream, sent := newStream(), event(7)
	sent.Metadata = []byte(`{"trace":"7"}`)
	done := must(w.try(stream, kurrentdb.NoStream{}, sent))
	expect(done.NextExpectedVersion, uint64(0))
	expect(done.CommitPosition, done.PreparePosition)
	read := must(w.events(stream, kurrentdb.ReadStreamOptions{}, 10))
	expect(len(read), 1)
	seen := read[0].Event
	expect([]any{seen.EventID, seen.EventType, seen.StreamID}, []any{sent.EventID, "Counted", stream})
	expect(seen.ContentType, "application/json")
	expect([]string{string(seen.Data), string(seen.UserMetadata)}, []string{`{"n":7}`, `{"trace":"7"}`})
	expect(seen.Position.Commit, done.CommitPosition)
	if age := time.Since(seen.CreatedDate); age < -time.Minute || age > time.Minute {
		panic(fmt.Sprint("it was created at ", seen.CreatedDate))
	}
}

func appendBytes(w *world) {
	stream, data := newStream(), make([]byte, 256)
	for at := range data {
		data[at] = byte(at)
	}
	must(w.try(stream, kurrentdb.Any{}, kurrentdb.EventData{EventType: "Blob", Data: data}))
	seen := must(w.events(stream, kurrentdb.ReadStreamOptions{}, 10))[0].Event
	expect(seen.ContentType, "application/octet-stream")
	expect(bytes.Equal(seen.Data, data), true)
}

func blob(size int) kurrentdb.EventData {
	return kurrentdb.EventData{EventType: "Blob", Data: make([]byte, size)}
}

func appendLarge(w *world) {
	stream := newStream()
	must(w.try(stream, kurrentdb.Any{}, blob(4_000_000)))
	read := must(w.events(stream, kurrentdb.ReadStreamOptions{}, 1))
	expect(len(read[0].Event.Data), 4_000_000)
}

func appendTooLarge(w *world) {
	stream := newStream()
	_, err := w.try(stream, kurrentdb.Any{}, blob(7_000_000), blob(7_000_000), blob(7_000_000))
	if err == nil {
		panic("an append over the limit succeeded")
	}
	expect(w.append(stream, 0, 1).NextExpectedVersion, uint64(0))
}

func appendInEachState(w *world) {
	stream := newStream()
	for at, state := range []kurrentdb.StreamState{
		kurrentdb.NoStream{}, kurrentdb.Any{}, kurrentdb.StreamExists{}, kurrentdb.Revision(2),
	} {
		done := must(w.try(stream, state, event(uint64(at))))
		expect(done.NextExpectedVersion, uint64(at))
	}
	expect(w.all(stream), numbers(0, 4))
}

func appendAgain(w *world) {
	stream, events := newStream(), counts(0, 2)
	first := must(w.try(stream, kurrentdb.NoStream{}, events...))
	again := must(w.try(stream, kurrentdb.NoStream{}, events...))
	expect(again, first)
	expect(w.all(stream), numbers(0, 2))
}

func wrongVersion(w *world) {
	stream := newStream()
	w.append(stream, 0, 2)
	for _, state := range []kurrentdb.StreamState{
		kurrentdb.NoStream{}, kurrentdb.Revision(0), kurrentdb.Revision(7),
	} {
		_, err := w.try(stream, state, event(9))
		expectCode(err, kurrentdb.ErrorCodeWrongExpectedVersion)
		expect(strings.Contains(err.Error(), "got '1'"), true)
	}
	_, err := w.try(newStream(), kurrentdb.StreamExists{}, event(9))
	expectCode(err, kurrentdb.ErrorCodeWrongExpectedVersion)
}

func readBothWays(w *world) {
	stream := newStream()
	w.append(stream, 0, 100)
	back := kurrentdb.Backwards
	read := func(direction kurrentdb.Direction, from kurrentdb.StreamPosition, count uint64) []uint64 {
		return w.read(stream, kurrentdb.ReadStreamOptions{Direction: direction, From: from}, count)
	}
	expect(read(kurrentdb.Forwards, kurrentdb.Revision(40), 3), []uint64{40, 41, 42})
	expect(read(kurrentdb.Forwards, kurrentdb.Start{}, 1000), numbers(0, 100))
	expect(read(back, kurrentdb.End{}, 2), []uint64{99, 98})
	expect(read(back, kurrentdb.Revision(2), 10), []uint64{2, 1, 0})
}

func readAllBothWays(w *world) {
	stream := newStream()
	first := w.append(stream, 0, 1)
	w.append(stream, 1, 5)
	options := kurrentdb.ReadAllOptions{From: position(first)}
	expect(numbersOf(must(drain(w.client.ReadAll(w.ctx, options, 5)))), numbers(0, 5))
	options = kurrentdb.ReadAllOptions{Direction: kurrentdb.Backwards, From: kurrentdb.End{}}
	expect(numbersOf(must(drain(w.client.ReadAll(w.ctx, options, 5)))), backwards(numbers(0, 5)))
}

func findNoStream(w *world) {
	_, err := w.events(newStream(), kurrentdb.ReadStreamOptions{}, 1)
	expectCode(err, kurrentdb.ErrorCodeResourceNotFound)
	_, err = w.client.DeleteStream(w.ctx, newStream(), kurrentdb.DeleteStreamOptions{})
	if err == nil {
		panic("a stream that is not there was deleted")
	}
}

func keepDeadline(w *world) {
	soon := 300 * time.Millisecond
	options := kurrentdb.SubscribeToStreamOptions{Deadline: &soon}
	subscription := must(w.client.SubscribeToStream(w.ctx, newStream(), options))
	for {
		if message := subscription.Recv(); message.SubscriptionDropped != nil {
			expect(strings.Contains(message.SubscriptionDropped.Error.Error(), "DeadlineExceeded"), true)
			return
		}
	}
}

func metadata(w *world) {
	stream := newStream()
	w.append(stream, 0, 5)
	wanted := kurrentdb.StreamMetadata{}
	wanted.SetMaxCount(2)
	wanted.AddCustomProperty("owner", "ada")
	options := kurrentdb.AppendToStreamOptions{}
	must(w.client.SetStreamMetadata(w.ctx, stream, options, wanted))
	seen := must(w.client.GetStreamMetadata(w.ctx, stream, kurrentdb.ReadStreamOptions{}))
	expect(*seen.MaxCount(), uint64(2))
	expect(seen.CustomProperty("owner"), "ada")
	expect(w.all(stream), []uint64{3, 4})
}

func deleteAndRecreate(w *world) {
	stream := newStream()
	w.append(stream, 0, 2)
	wrong := kurrentdb.DeleteStreamOptions{StreamState: kurrentdb.Revision(5)}
	if _, err := w.client.DeleteStream(w.ctx, stream, wrong); err == nil {
		panic("it was deleted at another revision")
	}
	right := kurrentdb.DeleteStreamOptions{StreamState: kurrentdb.Revision(1)}
	deleted := must(w.client.DeleteStream(w.ctx, stream, right))
	expect(deleted.Position.Commit > 0, true)
	_, err := w.events(stream, kurrentdb.ReadStreamOptions{}, 1)
	expectCode(err, kurrentdb.ErrorCodeResourceNotFound)
	done := must(w.try(stream, kurrentdb.NoStream{}, event(2)))
	expect(done.NextExpectedVersion, uint64(2))
	expect(w.all(stream), []uint64{2})
}

func tombstone(w *world) {
	stream := newStream()
	w.append(stream, 0, 1)
	options := kurrentdb.TombstoneStreamOptions{StreamState: kurrentdb.Revision(0)}
	must(w.client.TombstoneStream(w.ctx, stream, options))
	_, err := w.events(stream, kurrentdb.ReadStreamOptions{}, 1)
	expectCode(err, kurrentdb.ErrorCodeStreamDeleted)
	_, err = w.try(stream, kurrentdb.Any{}, event(1))
	expectCode(err, kurrentdb.ErrorCodeStreamDeleted)
}

func serverVersion(w *world) {
	version := must(w.client.GetServerVersion())
	expect([]int{version.Major, version.Minor}, []int{26, 1})
}

func gossip(w *world) {
	found := connect(strings.Replace(w.connection, "kurrentdb://", "kurrentdb+discover://", 1))
	defer found.Close()
	stream := newStream()
	other := &world{ctx: w.ctx, client: found}
	other.append(stream, 1, 2)
	expect(other.all(stream), []uint64{1})
	members := must(w.client.Gossip(w.ctx))
	expect(len(members), 1)
}

// State for the cases of "again".
type keepsake struct {
	Name  string
	Place uint64
}

func (w *world) keep(kept keepsake) {
	if err := os.WriteFile(w.kept, must(json.Marshal(kept)), 0o600); err != nil {
		panic(err)
	}
}

func (w *world) before() (kept keepsake) {
	if err := json.Unmarshal(must(os.ReadFile(w.kept)), &kept); err != nil {
		panic(err)
	}
	return kept
}

// Appends the numbers alternately to two streams with a unique name.
func (w *world) mixed(name string, from, to uint64) kurrentdb.Position {
	var first *kurrentdb.WriteResult
	for n := from; n < to; n++ {
		kind := "order"
		if n%2 == 1 {
			kind = "cart"
		}
		done := w.append(name+"-"+kind, n, n+1)
		if first == nil {
			first = done
		}
	}
	return position(first)
}

func odd(from, to uint64) []uint64 {
	all := []uint64{}
	for n := from; n < to; n++ {
		if n%2 == 1 {
			all = append(all, n)
		}
	}
	return all
}

func link(number uint64, stream string) kurrentdb.EventData {
	data := fmt.Appendf(nil, "%d@%s", number, stream)
	return kurrentdb.EventData{EventID: uuid.New(), EventType: "$>", Data: data}
}
