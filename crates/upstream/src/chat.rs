//! Chat Completions, as its client: OpenAI and everybody who claims to speak it (Ollama, vLLM, llama.cpp, LM Studio,
//! OpenRouter, DeepSeek, Groq, Mistral, Gemini, Azure).
//!
//! A stream is chunks of one message, without items: `ingest` makes thoughts, a message and calls of it, each with a slot
//! of its own. What differs from service to service, and is read all the same:
//!
//! - Thoughts come as `reasoning_content`, as `reasoning`, as `reasoning_details`, or as `thinking` parts of the content.
//! - Content is a text, or `null`, or a list of parts. `<think>` tags in it are text.
//! - A call comes in pieces or whole; with an `index`, without, or with the same for all; with its id once, in every
//!   piece, or another in every piece; with its name once, again and again, or in pieces; its arguments are a text, an
//!   object, or `null`, and may come before its name. `function_call` is a call, too. (`calls` says how they are told
//!   apart.)
//! - The stream ends with `[DONE]`, or after a `finish_reason`; either is enough, unless it is `error`, or arguments are
//!   open and there was no `finish_reason`. Every chunk may have one: the last counts. `stop` with calls means the calls.
//! - Usage comes in a chunk without choices, in every chunk, in a choice, or in `x_groq`. Some leave thoughts out of
//!   `completion_tokens`.
//! - An error comes as an event of a good answer: at the top, in a choice, flat, or as a bare text.
//! - A chunk may hold a whole `message` in place of a `delta`, or no choice at all. Choices but the first are `Unknown`,
//!   and so is audio.
//!
//! `request` builds what the strictest of them takes; what that means is said there.

mod ingest;
mod message_builder;
mod reasoning;
mod refusal;
mod request;
mod settings;
mod tool_calls;
mod usage;

pub use ingest::new_ingest;
pub use refusal::classify_error;
pub use request::{build_request, without_reasoning};
