/**
 * The TypeScript client of tgad, for Node, Bun and Deno: tool calls that happen once, and can be proven.
 * `Client` talks to a daemon, `tool` makes a function of your own a governed call, and errors are
 * `TgadError` and a class for each code.
 */
export { Begun, NotSent } from './begun.js';
export { Client, type ClientOptions, type Resolution } from './client.js';
export * from './codes.js';
export { TgadError, type ErrorFacts } from './errors.js';
export { JsonNumber, encode, parse } from './json.js';
export type { Args, BeginOptions, CallOptions, Claim, Facts, Outcome, Wait } from './requests.js';
export { Result, Unreachable } from './result.js';
export { tool, type ToolOptions } from './tool.js';
export type * as wire from './wire.js';
