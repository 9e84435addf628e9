// A page with AG-UI's client, whose server has another origin and asks for keys.

import { HttpAgent } from '@ag-ui/client';

globalThis.newAgent = ({ url, threadId, key }) =>
  new HttpAgent({ url, threadId, headers: key ? { Authorization: `Bearer ${key}` } : {} });
document.getElementById('root').innerHTML = '<main>ready</main>';
