package main

import (
	"path/filepath"
	"strings"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
)

// A TLS server that authenticates users. The passwords of admin and ops are first and second; kept
// is a folder with ca.crt (the authority of the server), strange.crt (another authority), and
// ops.crt with ops.key, a certificate of the user ops.
var secureCases = []testCase{
	{"append and read encrypted with a password", withPassword},
	{"authenticate one call", oneCall},
	{"reject a missing and a wrong password", wrongPassword},
	{"authenticate by a user certificate", userCertificate},
	{"reject a server without a trusted certificate", strangeServer},
	{"obey the ACL of a stream", obeyAcl},
	{"use the general ACL by name", generalAcl},
	{"end a subscription after its permission is revoked", rightTakenAway},
	{"consume with read permission only", consumeReadable},
	{"require permission for groups and projections", leaveToOperators},
}

// Returns a world with the client of this user, or anonymous, and further connection settings.
func (w *world) as(user string, more ...string) *world {
	at := w.connection
	if user != "" {
		at = strings.Replace(at, "://", "://"+user+"@", 1)
	}
	settings := append([]string{"tlsCaFile=" + filepath.Join(w.kept, "ca.crt")}, more...)
	other := *w
	other.client = connect(at + "?" + strings.Join(settings, "&"))
	return &other
}

// Returns the clients of both users.
func (w *world) users() (admin, ops *world) {
	return w.as("admin:first"), w.as("ops:second")
}

func (w *world) rule(stream string, acl any) error {
	metadata := kurrentdb.StreamMetadata{}
	metadata.SetAcl(acl)
	options := kurrentdb.AppendToStreamOptions{}
	_, err := w.client.SetStreamMetadata(w.ctx, stream, options, metadata)
	return err
}

func denied(err error) {
	expectCode(err, kurrentdb.ErrorCodeAccessDenied)
}

// Creates a stream of admin with one event.
func (w *world) ownStream(acl any) string {
	stream := newStream()
	w.append(stream, 0, 1)
	if acl != nil {
		done(w.rule(stream, acl))
	}
	return stream
}

var forAdmin = kurrentdb.Acl{}

func init() {
	forAdmin.AddReadRoles("admin")
	forAdmin.AddWriteRoles("$ops")
	forAdmin.AddDeleteRoles("admin")
	forAdmin.AddMetaReadRoles("admin")
	forAdmin.AddMetaWriteRoles("admin")
}

func (w *world) peek(stream string) error {
	_, err := w.events(stream, kurrentdb.ReadStreamOptions{From: kurrentdb.Start{}}, 10)
	return err
}

func withPassword(w *world) {
	admin, ops := w.users()
	stream := admin.ownStream(nil)
	ops.append(stream, 1, 2)
	expect(ops.all(stream), numbers(0, 2))
	// The same client, with discovery by gossip.
	found := *w
	found.connection = strings.Replace(w.connection, "://", "+discover://", 1)
	expect(found.as("ops:second").all(stream), numbers(0, 2))
}

func oneCall(w *world) {
	admin, ops := w.users()
	stream := admin.ownStream(forAdmin)
	denied(ops.peek(stream))
	options := kurrentdb.ReadStreamOptions{
		Authenticated: &kurrentdb.Credentials{Login: "admin", Password: "first"},
	}
	expect(ops.read(stream, options, 10), numbers(0, 1))
	options.Authenticated = &kurrentdb.Credentials{Login: "admin", Password: "second"}
	_, err := ops.events(stream, options, 10)
	expectCode(err, kurrentdb.ErrorCodeUnauthenticated)
}

func wrongPassword(w *world) {
	for user, code := range map[string]kurrentdb.ErrorCode{
		"":              kurrentdb.ErrorCodeAccessDenied,
		"admin:second":  kurrentdb.ErrorCodeUnauthenticated,
		"unknown:first": kurrentdb.ErrorCodeUnauthenticated,
	} {
		other := w.as(user)
		_, err := other.try(newStream(), kurrentdb.Any{}, event(0))
		expectCode(err, code)
		expectCode(other.peek(newStream()), code)
	}
}

func userCertificate(w *world) {
	admin := w.as("admin:first")
	acl := kurrentdb.Acl{}
	acl.AddReadRoles("ops")
	acl.AddWriteRoles("ops")
	stream := admin.ownStream(acl)
	certificate := "userCertFile=" + filepath.Join(w.kept, "ops.crt")
	key := "userKeyFile=" + filepath.Join(w.kept, "ops.key")
	ops := w.as("", certificate, key)
	ops.append(stream, 1, 2)
	expect(ops.all(stream), numbers(0, 2))
}

func strangeServer(w *world) {
	at := strings.Replace(w.connection, "://", "://admin:first@", 1)
	authority := "tlsCaFile=" + filepath.Join(w.kept, "strange.crt")
	strange := *w
	strange.client = connect(at + "?maxDiscoverAttempts=1&" + authority)
	_, err := strange.try(newStream(), kurrentdb.Any{}, event(0))
	failsWith(err, "certificate signed by unknown authority")
}

func obeyAcl(w *world) {
	admin, ops := w.users()
	stream := admin.ownStream(forAdmin)
	denied(ops.peek(stream))
	ops.append(stream, 1, 2)
	_, err := ops.client.GetStreamMetadata(w.ctx, stream, kurrentdb.ReadStreamOptions{})
	denied(err)
	denied(ops.rule(stream, kurrentdb.UserStreamAcl))
	_, err = ops.client.DeleteStream(w.ctx, stream, kurrentdb.DeleteStreamOptions{})
	denied(err)
	_, err = ops.session(request(stream, kurrentdb.Any{}, event(2)))
	done(err)
	expect(admin.all(stream), numbers(0, 3))
	seen := must(admin.client.GetStreamMetadata(w.ctx, stream, kurrentdb.ReadStreamOptions{}))
	expect(*seen.StreamAcl(), forAdmin)
	must(admin.client.DeleteStream(w.ctx, stream, kurrentdb.DeleteStreamOptions{}))
	hidden := admin.ownStream(kurrentdb.SystemStreamAcl)
	_, err = ops.session(request(stream, kurrentdb.Any{}, event(2)), request(hidden, kurrentdb.Any{}, event(2)))
	failsWith(err, "Denied")
}

func generalAcl(w *world) {
	admin, ops := w.users()
	stream := admin.ownStream(kurrentdb.SystemStreamAcl)
	denied(ops.peek(stream))
	done(admin.rule(stream, kurrentdb.UserStreamAcl))
	expect(ops.all(stream), numbers(0, 1))
}

func rightTakenAway(w *world) {
	admin, ops := w.users()
	stream := admin.ownStream(nil)
	subscription := ops.follow(stream, kurrentdb.Start{})
	defer subscription.Close()
	seen, _, _ := take(subscription, 1)
	expect(seen, numbers(0, 1))
	done(admin.rule(stream, forAdmin))
	admin.append(stream, 1, 2)
	for {
		message := subscription.Recv()
		if message.EventAppeared != nil {
			panic("received an event without read permission")
		}
		if message.SubscriptionDropped != nil {
			expect(strings.Contains(message.SubscriptionDropped.Error.Error(), "PermissionDenied"), true)
			return
		}
	}
}

func consumeReadable(w *world) {
	admin, ops := w.users()
	stream, hidden := admin.ownStream(nil), admin.ownStream(forAdmin)
	for _, of := range []string{stream, hidden} {
		done(ops.client.CreatePersistentSubscription(w.ctx, of, "group", fromStart(soon())))
	}
	group := ops.join(stream)
	defer group.Close()
	expect(acknowledge(group, 1), numbers(0, 1))
	ops.untilDone(stream, 0)
	_, err := ops.client.SubscribeToPersistentSubscription(w.ctx, hidden, "group", join)
	denied(err)
}

func leaveToOperators(w *world) {
	admin, ops := w.users()
	stream := admin.ownStream(nil)
	done(ops.client.CreatePersistentSubscription(w.ctx, stream, "group", fromStart(soon())))
	anonymous := w.as("")
	denied(anonymous.client.DeletePersistentSubscription(w.ctx, stream, "group", remove))
	_, err := anonymous.client.ListAllPersistentSubscriptions(w.ctx, list)
	denied(err)
	failsWith(anonymous.projections().Disable(w.ctx, "$by_category", nothing), "PermissionDenied")
	done(ops.client.DeletePersistentSubscription(w.ctx, stream, "group", remove))
}
