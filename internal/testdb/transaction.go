package testdb

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// RolledBack calls do in a transaction that is aborted: what is there afterwards was no part of it.
func RolledBack(t testing.TB, db *mongo.Database, do func(ctx context.Context)) {
	t.Helper()
	session, err := db.Client().StartSession()
	if err != nil {
		t.Fatalf("beginning a session: %v", err)
	}
	defer session.EndSession(context.WithoutCancel(t.Context()))
	if err := session.StartTransaction(); err != nil {
		t.Fatalf("beginning a transaction: %v", err)
	}
	ctx := mongo.NewSessionContext(t.Context(), session)
	do(ctx)
	if err := session.AbortTransaction(ctx); err != nil {
		t.Fatalf("aborting a transaction: %v", err)
	}
}
