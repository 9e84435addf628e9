// AG-UI's own client: a run, and the same conversation on a device that comes later.
import { HttpAgent } from '@ag-ui/client';

const url = 'http://127.0.0.1:8787/agui/helper';
const agent = new HttpAgent({ url, threadId: crypto.randomUUID() });
agent.addMessage({ id: crypto.randomUUID(), role: 'user', content: 'What is the price of VNM?' });
await agent.runAgent({}, {
  onToolCallEndEvent: ({ toolCallName, toolCallArgs }) => console.log(toolCallName, toolCallArgs),
  onTextMessageContentEvent: ({ event }) => { process.stdout.write(event.delta); },
});
console.log();

// The server has the conversation; while a run is in progress, its events follow.
const other = new HttpAgent({ url: `${url}/connect`, threadId: agent.threadId });
await other.runAgent();
console.log(other.messages.map(({ role }) => role).join(', '));
