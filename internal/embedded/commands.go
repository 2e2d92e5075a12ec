package embedded

import "strings"

// commands is what the server does, by the name of the command.
var commands = map[string]*command{}

// init and not a literal, since runServerStatus and the like refer to it.
func init() {
	for name, c := range map[string]command{
		"insert": {run: runInsert, fields: "documents ordered bypassDocumentValidation", inTxn: true, retryable: true},
		"update": {run: runUpdate, fields: "updates ordered bypassDocumentValidation", refused: "let", inTxn: true, retryable: true},
		"delete": {run: runDelete, fields: "deletes ordered", refused: "let", inTxn: true, retryable: true},
		"findAndModify": {run: runFindAndModify, inTxn: true, retryable: true, refused: "let",
			fields: "query sort remove update new fields upsert arrayFilters hint bypassDocumentValidation"},

		"find": {run: runFind, inTxn: true,
			fields:  "filter sort projection hint skip limit batchSize singleBatch noCursorTimeout allowPartialResults allowDiskUse awaitData oplogReplay",
			refused: "min max returnKey showRecordId tailable let"},
		"getMore":     {run: runGetMore, fields: "collection batchSize term", inTxn: true},
		"killCursors": {run: runKillCursors, fields: "cursors", inTxn: true},
		"count":       {run: runCount, fields: "query limit skip hint fields"},
		"distinct":    {run: runDistinct, fields: "key query hint", inTxn: true},
		"aggregate": {run: runAggregate, inTxn: true, refused: "let",
			fields: "pipeline cursor hint allowDiskUse explain bypassDocumentValidation"},
		"explain": {run: runExplain, fields: "verbosity"},

		"create": {run: runCreate, inTxn: true, fields: "autoIndexId",
			refused: "capped size max validator validationLevel validationAction viewOn pipeline timeseries expireAfterSeconds clusteredIndex changeStreamPreAndPostImages storageEngine indexOptionDefaults encryptedFields"},
		"drop":            {run: runDrop},
		"dropDatabase":    {run: runDropDatabase},
		"createIndexes":   {run: runCreateIndexes, fields: "indexes commitQuorum"},
		"dropIndexes":     {run: runDropIndexes, fields: "index"},
		"listIndexes":     {run: runListIndexes, fields: "cursor"},
		"listCollections": {run: runListCollections, fields: "filter nameOnly authorizedCollections cursor"},
		"listDatabases":   {run: runListDatabases, fields: "filter nameOnly authorizedDatabases", admin: true},

		"commitTransaction": {run: runCommitTransaction, fields: "recoveryToken", inTxn: true, admin: true},
		"abortTransaction":  {run: runAbortTransaction, fields: "recoveryToken", inTxn: true, admin: true},
		"endSessions":       {run: runEndSessions},

		"hello":        {run: runHello, fields: "*"},
		"ping":         {run: runPing},
		"buildInfo":    {run: runBuildInfo},
		"serverStatus": {run: runServerStatus, fields: "*"},
		"validate":     {run: runValidate, fields: "full repair metadata"},
	} {
		commands[name] = &c
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
		saslContinue saslStart setDefaultRWConcern setFeatureCompatibilityVersion setFreeMonitoring
		setIndexCommitQuorum setParameter setShardVersion shardCollection shutdown split splitVector startSession top
		unsetSharding updateRole updateUser usersInfo validateDBMetadata voteCommitIndexBuild
		waitForFailPoint whatsmyuri listClusterCatalog`) {
		m[name] = struct{}{}
	}
	return m
}()
