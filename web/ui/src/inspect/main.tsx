import { createRoot } from 'react-dom/client';
import { Guard } from '../guard';
import { App } from './app';
import '../styles/base.css';
import '../styles/inspect.css';

createRoot(document.getElementById('root')!).render(
  <Guard source="" instead={<p role="alert">The inspector has failed. Reload the page.</p>}>
    <App />
  </Guard>,
);
