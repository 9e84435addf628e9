// What the demo is asked, and what every protocol must show of it.

/** A tool of the caller's own, as Responses declares it. */
export const PICK = {
  type: 'function', name: 'pick', description: 'Picks a colour.', strict: false,
  parameters: { type: 'object', properties: {}, additionalProperties: false },
};

/** How a caller says that it will answer for tools that the server runs. */
export const HOSTED = { type: 'mcp', server_label: 'headwater', server_url: 'http://127.0.0.1/v1', require_approval: 'always' };

const trade = { name: 'execute_trade', arguments: '{"symbol":"VNM","quantity":100}' };

/**
 * `tools` are what the server ran, in the order of their calls. `end` is the last event; `asks` is what it waits for, and
 * `text` is all that it says, before the question and after.
 */
export const SCENARIOS = [
  { input: 'hello', text: /^Hello! I am Headwater's demo\. Ask me for the weather, .* to be slow 5 seconds\.$/s },
  {
    input: 'weather', cites: [1], thinks: 2,
    text: /^The weather in Paris is sunny with a temperature of 15C\.\[\^1\]$/,
    tools: [{ name: 'get_weather', arguments: '{"location":"Paris, France"}', output: /temperature.*\n\[image /s }],
  },
  {
    input: 'help', cites: [1], thinks: 2,
    text: /^WeatherAgent says: sunny, 15C\.\[\^1\]$/,
    tools: [{ name: 'ask_for_help', arguments: /"prompt":"Get the current weather/, output: /^The weather in Paris is sunny .*\[\^1\]$/ }],
  },
  {
    input: 'parallel',
    text: /^All three tools ran side by side, in the time of the slowest\.$/,
    tools: ['tool_a', 'tool_b', 'tool_c'].map((name) => ({ name, arguments: '{}', output: /./ })),
  },
  {
    input: 'handoff',
    text: /^I am the specialist\. I have taken over from the demo agent\.$/,
    tools: [{ name: 'transfer_to_specialist', arguments: '{}', output: /specialist/ }],
  },
  { input: 'image', text: /^Here is a picture of where a river begins\.$/, pictures: 3 },
  { input: 'story 30 fast', text: /^Once upon a time a spring .* lifted it into $/, words: 30 },
  { input: 'fail', end: 'failed', text: /^This answer begins well, but in the middle of $/ },
  { input: 'slow 1', text: /^The slow tool is .+\.$/, tools: [{ name: 'slow', arguments: '{"seconds":1}', output: /./ }] },
  { input: 'trade', asks: 'approval', text: /^I will place the order\.$/, question: trade },
  { input: 'client', asks: 'client_tool', text: /^$/, declare: [PICK] },
];

/** All scenarios, side by side. */
export const each = (visit) => Promise.all(SCENARIOS.map(visit));

/** What is sent for a scenario. */
export const request = ({ input, declare }, more = {}) => ({ model: 'demo', input, ...(declare && { tools: declare }), ...more });

/** The words of a response's messages. */
export function words(response) {
  const parts = response.output.filter((item) => item.type === 'message').flatMap((item) => item.content);
  return parts.map((part) => part.text ?? '').join('');
}

/** The words that a stream's deltas give. */
export const said = (events) =>
  events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join('');

/** The id of a run's response: each part of a run between two pauses is one. */
export const responseId = (task_id, segment = 1) => task_id.replace(/^task_/, 'resp_') + (segment > 1 ? `_${segment}` : '');

/** The run that a response is part of. */
export const taskId = (response_id) => response_id.replace(/^resp_([^_]+)(_\d+)?$/, 'task_$1');
