export * from './commands.js';
export { createResumingFetch, type ConnectionState, type ResumingFetchOptions } from './fetch.js';
export { ConnectionLostError, type ErrorCategory, isConnectionLost, isResyncError, isStreamError, RequestError, ResyncError, StreamError } from './errors.js';
export { joinDeltas } from './join.js';
export { isMalformedEvent, LeanDecoder, type LogEvent, type LogRecord, MalformedEventError } from './lean.js';
export * from './prepare.js';
export { loadSnapshot, shouldResume, stop, type Snapshot, type SnapshotRequest, type WaitingMessage } from './snapshot.js';
export * from './subagents.js';
export * from './transport.js';
