// A page with CopilotKit's chat: a tool of its own, and a button for what is asked.

import { CopilotChat, CopilotKitProvider, useFrontendTool, useInterrupt } from '@copilotkit/react-core/v2';
import { createRoot } from 'react-dom/client';
import { z } from 'zod';

const threadId = new URL(location.href).searchParams.get('thread');

function Chat() {
  useInterrupt({
    agentId: 'demo',
    render: ({ interrupt, resolve }) => (
      <div id="interrupt">
        <span>{interrupt?.message}</span>
        <button id="approve" onClick={() => resolve({ approved: true })}>Approve</button>
        <button id="reject" onClick={() => resolve({ approved: false, reason: 'not today' })}>Reject</button>
      </div>
    ),
  });
  useFrontendTool({ name: 'pick', description: 'Picks a colour.', parameters: z.object({}), handler: async () => 'red' });
  return <CopilotChat agentId="demo" threadId={threadId} />;
}

createRoot(document.getElementById('root')).render(
  <CopilotKitProvider runtimeUrl="/copilotkit" showDevConsole={false}>
    <Chat />
  </CopilotKitProvider>,
);
