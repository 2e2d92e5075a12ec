package embedded

import "strings"

// command is how a command is run and which fields it knows.
type command struct {
	run       func(*request) (*docBuilder, error)
	fields    string // known ones beside the general, separated by spaces; "*" for any
	refused   string // fields that are MongoDB's, but not this server's
	inTxn     bool   // allowed in a transaction
	admin     bool   // only on the database admin
	retryable bool   // remembered when it has a txnNumber
	unstable  bool   // not in version 1 of the stable API

	known known
}

// generalFields may come with every command. Those not looked at ask for what
// is so anyway: every read sees what is durable, every write is.
const generalFields = " $db lsid txnNumber startTransaction autocommit readConcern writeConcern $clusterTime " +
	"$readPreference maxTimeMS comment apiVersion apiStrict apiDeprecationErrors databaseVersion shardVersion"

// commands is what the server does, by the name of the command.
var commands = map[string]*command{}

// init and not a literal, since runExplain refers to it.
func init() {
	for name, c := range map[string]*command{
		"insert": {run: runInsert, inTxn: true, retryable: true, fields: "documents ordered bypassDocumentValidation"},
		"update": {run: runUpdate, inTxn: true, retryable: true, fields: "updates ordered bypassDocumentValidation",
			refused: "let"},
		"delete": {run: runDelete, inTxn: true, retryable: true, fields: "deletes ordered", refused: "let"},
		"findAndModify": {run: runFindAndModify, inTxn: true, retryable: true, refused: "let",
			fields: "query sort remove update new fields upsert arrayFilters hint bypassDocumentValidation"},

		"find": {run: runFind, inTxn: true, refused: "min max returnKey showRecordId tailable let",
			fields: "filter sort projection hint skip limit batchSize singleBatch noCursorTimeout allowPartialResults " +
				"allowDiskUse awaitData oplogReplay"},
		"getMore":     {run: runGetMore, inTxn: true, fields: "collection batchSize term"},
		"killCursors": {run: runKillCursors, inTxn: true, fields: "cursors"},
		"count":       {run: runCount, fields: "query limit skip hint fields"},
		"distinct":    {run: runDistinct, inTxn: true, unstable: true, fields: "key query hint"},
		"aggregate": {run: runAggregate, inTxn: true, refused: "let explain",
			fields: "pipeline cursor hint allowDiskUse bypassDocumentValidation"},
		"explain": {run: runExplain, fields: "verbosity"},

		"create": {run: runCreate, inTxn: true, fields: "autoIndexId",
			refused: "capped size max validator validationLevel validationAction viewOn pipeline timeseries " +
				"expireAfterSeconds clusteredIndex changeStreamPreAndPostImages storageEngine indexOptionDefaults " +
				"encryptedFields"},
		"drop":            {run: runDrop},
		"dropDatabase":    {run: runDropDatabase},
		"createIndexes":   {run: runCreateIndexes, fields: "indexes commitQuorum"},
		"dropIndexes":     {run: runDropIndexes, fields: "index"},
		"listIndexes":     {run: runListIndexes, fields: "cursor"},
		"listCollections": {run: runListCollections, fields: "filter nameOnly authorizedCollections cursor"},
		"listDatabases":   {run: runListDatabases, fields: "filter nameOnly authorizedDatabases", admin: true},

		"commitTransaction": {run: runCommitTransaction, inTxn: true, admin: true, fields: "recoveryToken"},
		"abortTransaction":  {run: runAbortTransaction, inTxn: true, admin: true, fields: "recoveryToken"},
		"endSessions":       {run: runEndSessions, fields: "*"},

		"hello":     {run: runHello, fields: "*"},
		"ping":      {run: runPing},
		"buildInfo": {run: runBuildInfo, unstable: true},
		"validate":  {run: runValidate, unstable: true, fields: "full repair metadata"},
	} {
		if c.fields != "*" {
			c.known = knownFields(c.fields+generalFields, c.refused)
		}
		commands[name] = c
	}
	for alias, name := range map[string]string{
		"isMaster": "hello", "ismaster": "hello", "buildinfo": "buildInfo", "findandmodify": "findAndModify",
		"deleteIndexes": "dropIndexes",
	} {
		commands[alias] = commands[name]
	}
}

// refusedCommands are MongoDB's, but not this server's.
var refusedCommands = func() map[string]struct{} {
	m := map[string]struct{}{}
	for name := range strings.FieldsSeq(`
		abortReshardCollection addShard applyOps appendOplogNote authenticate autoCompact balancerStart
		balancerStatus balancerStop bulkWrite captrunc collStats connectionStatus checkShardingIndex cleanupOrphaned cloneCollectionAsCapped
		collMod compact configureFailPoint convertToCapped coordinateCommitTransaction createRole createUser
		currentOp dataSize dbHash dbStats dropAllRolesFromDatabase dropAllUsersFromDatabase dropConnections
		dropRole dropUser enableSharding endBackup eval features filemd5 flushRouterConfig forceerror fsync
		fsyncUnlock geoSearch getCmdLineOpts getDefaultRWConcern getLastError getLog getShardMap getParameter getnonce
		grantPrivilegesToRole grantRolesToRole grantRolesToUser hostInfo invalidateUserCache isdbgrid
		killAllSessions killSessions killAllSessionsByPattern killOp listCommands listShards lockInfo logRotate logout
		mapReduce mergeChunks moveChunk movePrimary netstat planCacheClear planCacheClearFilters
		planCacheListFilters planCacheSetFilter prepareTransaction profile reIndex refreshSessions refineCollectionShardKey
		removeShard renameCollection replSetAbortPrimaryCatchUp replSetFreeze replSetGetConfig replSetGetStatus replSetInitiate
		replSetMaintenance replSetReconfig replSetResizeOplog replSetStepDown replSetSyncFrom reshardCollection
		resetError revokePrivilegesFromRole revokeRolesFromRole revokeRolesFromUser rolesInfo rotateCertificates
		saslContinue saslStart serverStatus setDefaultRWConcern setFeatureCompatibilityVersion setFreeMonitoring
		setIndexCommitQuorum setParameter setShardVersion shardCollection shutdown split splitVector startSession top
		unsetSharding updateRole updateUser usersInfo validateDBMetadata voteCommitIndexBuild
		waitForFailPoint whatsmyuri listClusterCatalog`) {
		m[name] = struct{}{}
	}
	return m
}()
