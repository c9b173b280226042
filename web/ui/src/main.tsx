import { createRoot } from 'react-dom/client';
import { App } from './app';
import { Guard } from './guard';
import './styles/index.css';

createRoot(document.getElementById('root')!).render(
  <Guard source="" instead={<Failed />}>
    <App />
  </Guard>,
);

function Failed() {
  return (
    <main className="failed" role="alert">
      <h1>This page has failed</h1>
      <p>Nothing is lost: every chat is stored on the server, and answers go on.</p>
      <button type="button" onClick={() => location.reload()}>
        Load it again
      </button>
    </main>
  );
}
