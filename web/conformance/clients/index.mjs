// The clients under test, side by side. They have a lock of their own because
// `ai` 7 asks for a newer Node than it needs; see README.md.
export * as oldest from 'ai-oldest';
export * as newest6 from 'ai6';
export * as newest7 from 'ai7';
