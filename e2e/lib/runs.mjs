// A run of the demo, from its question to its end, whatever it waits for in between.

import { PICK } from './scenarios.mjs';
import { frames, open } from './sse.mjs';

const { name, description, parameters } = PICK;
const TOOL = { name, description, parameters };

/** Begins a run. What it asks for is given by [`settle`]. */
export const begin = (server, input, more = {}) => server.post('/v1/tasks', { model: 'demo', input, tools: [TOOL], ...more });

/** Follows a run to its end: approvals get a yes, the caller's tools `red`. Gives how often it waited. */
export async function settle(server, task_id) {
  let pauses = 0;
  for await (const { data } of frames(await open(`${server.url}/v1/tasks/${task_id}/events`))) {
    if (data.type !== 'task.paused') continue;
    pauses += 1;
    for (const { kind, key, call_id } of data.pending) {
      if (kind === 'approval') await server.post(`/v1/tasks/${task_id}/approvals/${key}`, { decision: 'approve' });
      else await server.post(`/v1/tasks/${task_id}/tool_results`, [{ call_id, content: 'red' }]);
    }
  }
  return pauses;
}

/** A run that has ended: its task, and in how many parts its pauses divide it. */
export async function ended(server, input) {
  const { task_id } = await begin(server, input);
  const parts = (await settle(server, task_id)) + 1;
  return { ...(await server.get(`/v1/tasks/${task_id}`)), parts };
}
